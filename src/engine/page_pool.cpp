#include "tessera/engine/page_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

PagePool::PagePool(std::int64_t num_pages, std::int64_t page_size)
    : page_size_(page_size), num_usable_(std::max<std::int64_t>(num_pages - 1, 0)) {
  for (std::int64_t page = num_usable_; page >= 1; --page) free_.emplace_back(static_cast<std::int32_t>(page));
}

Result<std::vector<PageId>> PagePool::take(std::int64_t count) {
  if (count > num_free())
    return resource_exhausted(
        fmt::format("{} pages of the KV cache are wanted, {} of {} are free", count, num_free(), num_usable_));
  const auto first = free_.end() - count;
  std::vector<PageId> pages(first, free_.end());
  std::reverse(pages.begin(), pages.end());
  free_.erase(first, free_.end());
  return pages;
}

void PagePool::give_back(std::vector<PageId>& pages) {
  free_.insert(free_.end(), pages.rbegin(), pages.rend());
  pages.clear();
}

}  // namespace tessera
