#include "tessera/engine/steps/draft_keys.h"

namespace tessera {

DraftKeys::DraftKeys(const CacheManager& cache) : cache_(cache) {
  while (!cache.group(group_).keeps_all()) ++group_;
  has_keys_.resize(static_cast<std::size_t>(cache.group(group_).num_pages * cache.page_size()));
}

void DraftKeys::set(const ForwardBatch& batch, std::int64_t first, std::int64_t count, bool has_keys) {
  const std::span slots = std::span(batch.groups[group_].slots);
  for (const SlotId slot : slots.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)))
    has_keys_[static_cast<std::size_t>(slot.value())] = has_keys;
}

bool DraftKeys::has_keys(const Sequence& sequence, std::int64_t position) const {
  const std::int64_t page_size = cache_.page_size();
  const PageId page = sequence.cache.groups[group_].pages[static_cast<std::size_t>(position / page_size)];
  return has_keys_[static_cast<std::size_t>(page.value() * page_size + position % page_size)];
}

std::int64_t DraftKeys::first_missing(const Sequence& sequence, std::int64_t begin, std::int64_t end) const {
  while (begin < end && has_keys(sequence, begin)) ++begin;
  return begin;
}

std::int64_t DraftKeys::count_missing(const Sequence& sequence, std::int64_t end) const {
  std::int64_t missing = 0;
  for (std::int64_t position = 0; position < end; ++position) missing += has_keys(sequence, position) ? 0 : 1;
  return missing;
}

}  // namespace tessera
