#include "tessera/runner/memory/group_pages.h"

namespace tessera {

PageRange pages_touched(const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                        std::int64_t page_size) {
  if (group.kind == ir::CacheGroup::Kind::kState) return {0, 1};
  return {first_page_seen(computed, group.window, page_size), pages_for(length, page_size)};
}

void append_slots(CacheGroupBatch& batch, const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                  std::int64_t page_size, std::span<const PageId> table) {
  const bool one_slot = group.kind == ir::CacheGroup::Kind::kState;
  for (std::int64_t position = computed; position < length; ++position) {
    const std::int32_t page = table[static_cast<std::size_t>(one_slot ? 0 : position / page_size)].value();
    batch.slots.emplace_back(one_slot ? page : static_cast<std::int32_t>(page * page_size + position % page_size));
  }
}

}  // namespace tessera
