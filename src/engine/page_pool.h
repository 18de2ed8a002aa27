// Which pages of the KV cache are free. Page 0 is reserved for padding and never handed out.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/ops/forward_batch.h"

namespace tessera {

class PagePool {
 public:
  // `num_pages` counts page 0.
  PagePool(std::int64_t num_pages, std::int64_t page_size);

  std::int64_t page_size() const { return page_size_; }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t num_usable() const { return num_usable_; }
  std::int64_t pages_for(std::int64_t tokens) const { return tessera::pages_for(tokens, page_size_); }

  // kResourceExhausted where fewer are free; then none is taken.
  Result<std::vector<PageId>> take(std::int64_t count);
  void give_back(std::vector<PageId>& pages);  // and clears the list

 private:
  std::int64_t page_size_;
  std::int64_t num_usable_;
  std::vector<PageId> free_;  // taken from the back
};

}  // namespace tessera
