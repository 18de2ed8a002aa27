#include "tessera/engine/schema/char_set.h"

#include <algorithm>
#include <utility>

namespace tessera::schema {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CharRange kSurrogates = {0xD800, 0xDFFF};

std::vector<CharRange> merged(std::vector<CharRange> ranges) {
  std::ranges::sort(ranges, {}, &CharRange::first);
  std::vector<CharRange> out;
  for (const CharRange& range : ranges) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

std::vector<CharRange> inverted(const std::vector<CharRange>& ranges) {
  std::vector<CharRange> out;
  char32_t next = 0;
  for (const CharRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) out.push_back({next, kLast});
  return out;
}

}  // namespace

CharSet::CharSet(std::vector<CharRange> ranges) {
  for (const CharRange& range : merged(std::move(ranges))) {
    if (range.first < kSurrogates.first)
      ranges_.push_back({range.first, std::min<char32_t>(range.last, kSurrogates.first - 1)});
    if (range.last > kSurrogates.last)
      ranges_.push_back({std::max<char32_t>(range.first, kSurrogates.last + 1), range.last});
  }
}

CharSet CharSet::all() { return CharSet({{0, kLast}}); }

CharSet CharSet::any_of(std::string_view characters) {
  std::vector<CharRange> ranges;
  for (const char c : characters) ranges.push_back({static_cast<unsigned char>(c), static_cast<unsigned char>(c)});
  return CharSet(std::move(ranges));
}

bool CharSet::contains(char32_t code) const {
  const auto after = std::ranges::upper_bound(ranges_, code, {}, &CharRange::first);
  return after != ranges_.begin() && code <= std::prev(after)->last;
}

std::size_t CharSet::size() const {
  std::size_t count = 0;
  for (const CharRange& range : ranges_) count += range.last - range.first + 1;
  return count;
}

CharSet CharSet::operator|(const CharSet& other) const {
  std::vector<CharRange> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(ranges));
}

CharSet CharSet::operator&(const CharSet& other) const {
  std::vector<CharRange> ranges;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first);
    const char32_t last = std::min(a->last, b->last);
    if (first <= last) ranges.push_back({first, last});
    ++(a->last < b->last ? a : b);
  }
  return CharSet(std::move(ranges));
}

CharSet CharSet::complement() const { return CharSet(inverted(ranges_)); }

}  // namespace tessera::schema
