#include "tessera/engine/page_pool.h"

#include <algorithm>
#include <cassert>

namespace tessera {

PagePool::PagePool(std::int64_t num_pages, std::int64_t page_size)
    : page_size_(page_size), num_usable_(std::max<std::int64_t>(num_pages - 1, 0)) {
  for (std::int64_t page = num_usable_; page >= 1; --page) free_.emplace_back(static_cast<std::int32_t>(page));
}

PageId PagePool::take() {
  assert(!free_.empty());
  const PageId page = free_.back();
  free_.pop_back();
  return page;
}

}  // namespace tessera
