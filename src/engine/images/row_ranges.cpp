#include "tessera/engine/images/row_ranges.h"

#include <algorithm>

namespace tessera {

void RowRanges::grow(std::int64_t count) { size_ = std::max(size_, count); }

std::optional<std::int64_t> RowRanges::find(std::int64_t count) const {
  std::int64_t begin = 0;
  for (const Range& range : taken_) {
    if (range.begin - begin >= count) return begin;
    begin = range.end;
  }
  return size_ - begin >= count ? std::optional(begin) : std::nullopt;
}

std::int64_t RowRanges::take(std::int64_t count) {
  const std::int64_t begin = *find(count);
  taken_.insert(std::ranges::lower_bound(taken_, begin, {}, &Range::begin), {.begin = begin, .end = begin + count});
  return begin;
}

void RowRanges::give_back(std::int64_t first) {
  taken_.erase(std::ranges::lower_bound(taken_, first, {}, &Range::begin));
}

}  // namespace tessera
