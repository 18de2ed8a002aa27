#include "tessera/engine/cache/cache_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tessera {

CachePool::CachePool(CacheGroupOptions options)
    : options_(std::move(options)), num_usable_(std::max<std::int64_t>(options_.num_pages - 1, 0)) {
  free_.reserve(static_cast<std::size_t>(num_usable_));
  for (std::int64_t page = num_usable_; page >= 1; --page) free_.emplace_back(static_cast<std::int32_t>(page));
}

PageId CachePool::take() {
  assert(!free_.empty());
  const PageId page = free_.back();
  free_.pop_back();
  return page;
}

}  // namespace tessera
