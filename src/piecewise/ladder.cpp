#include "tessera/piecewise/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tessera {
namespace {

struct Run {
  std::int64_t first;
  std::int64_t last;
  std::int64_t step;
};

constexpr std::int64_t kNoEnd = kMaxLadderSize;

std::vector<std::int64_t> sizes_of(std::span<const Run> runs, std::int64_t max) {
  std::vector<std::int64_t> sizes;
  for (const Run& run : runs) {
    for (std::int64_t size = run.first; size <= std::min(run.last, max); size += run.step) sizes.push_back(size);
  }
  if (max > 0 && (sizes.empty() || sizes.back() < max)) sizes.push_back(max);
  return sizes;
}

}  // namespace

std::vector<std::int64_t> prefill_ladder(std::int64_t max_tokens, PrefillSchedule schedule) {
  static constexpr Run kDefault[] = {{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                                     {576, 1024, 64}, {1280, 4096, 256}, {4608, kNoEnd, 512}};
  static constexpr Run kLegacy[] = {{4, 32, 4}, {48, 256, 16}, {288, 512, 32}, {640, 4096, 128}, {4352, kNoEnd, 256}};
  return schedule == PrefillSchedule::kLegacy ? sizes_of(kLegacy, max_tokens) : sizes_of(kDefault, max_tokens);
}

std::vector<std::int64_t> decode_ladder(std::int64_t max_batch) {
  static constexpr Run kRuns[] = {{1, 1, 1}, {2, 2, 1}, {4, 12, 4}, {16, 256, 8}, {272, 496, 16}, {512, kNoEnd, 32}};
  return sizes_of(kRuns, max_batch);
}

Result<std::vector<std::int64_t>> parse_ladder(std::span<const std::string> values, std::string_view flag) {
  const auto wrong = [&](std::string_view value) {
    return invalid_argument(fmt::format(
        "{}: \"{}\" is not a size; accepted: whole numbers from 1 to {}, as \"[64,128]\", \"64,128\" or 64 128", flag,
        value, kMaxLadderSize));
  };
  std::vector<std::int64_t> sizes;
  for (const std::string& value : values) {
    std::string_view list = value;
    if (list.starts_with('[') != list.ends_with(']') || list.empty()) return wrong(value);
    if (list.starts_with('[')) list = list.substr(1, list.size() - 2);
    while (true) {
      const std::size_t comma = list.find(',');
      std::string_view item = list.substr(0, comma);
      while (item.starts_with(' ')) item.remove_prefix(1);
      while (item.ends_with(' ')) item.remove_suffix(1);
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), size);
      if (error != std::errc() || end != item.data() + item.size() || size < 1 || size > kMaxLadderSize)
        return wrong(item);
      sizes.push_back(size);
      if (comma == std::string_view::npos) break;
      list.remove_prefix(comma + 1);
    }
  }
  if (sizes.empty()) return wrong("");
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::optional<std::int64_t> round_up(std::span<const std::int64_t> ladder, std::int64_t count) {
  const auto it = std::lower_bound(ladder.begin(), ladder.end(), count);
  if (it == ladder.end()) return std::nullopt;
  return *it;
}

}  // namespace tessera
