#include "tessera/base/nearest.h"

#include <algorithm>
#include <array>

namespace tessera {
namespace {

constexpr std::size_t kMaxLength = 128;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_letter(char a, char b) { return lower(a) == lower(b); }

// Returns the edit distance in which a swap of two neighbouring letters costs one (optimal string alignment). Keeps
// only three rows of the table of distances between prefixes.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kMaxLength || b.size() > kMaxLength) return a == b ? 0 : std::max(a.size(), b.size());
  using Row = std::array<std::size_t, kMaxLength + 1>;
  Row before_last{};
  Row last{};
  Row row{};
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = last;
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = last[j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string_view> candidates,
                                       std::size_t most) {
  struct Near {
    std::size_t distance;
    std::string_view name;
  };
  const std::size_t limit = std::max<std::size_t>(1, (name.size() + 2) / 3);
  std::vector<Near> near;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    const bool begins_with_name = name.size() >= 2 && candidate.starts_with(name);
    if (distance <= limit || begins_with_name)
      near.push_back({begins_with_name ? std::min(distance, limit) : distance, candidate});
  }
  std::stable_sort(near.begin(), near.end(), [](const Near& a, const Near& b) { return a.distance < b.distance; });
  if (near.size() > most) near.resize(most);
  std::vector<std::string> names;
  names.reserve(near.size());
  for (const Near& n : near) names.emplace_back(n.name);
  return names;
}

}  // namespace tessera
