// Which pages of the KV cache are free. Page 0 is reserved for padding and never handed out.
#pragma once

#include <cstdint>
#include <vector>

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
  std::int64_t usable_tokens() const { return num_usable_ * page_size_; }
  std::int64_t pages_for(std::int64_t tokens) const { return tessera::pages_for(tokens, page_size_); }

  // Precondition: num_free() > 0.
  PageId take();
  // Precondition: the page was taken, and not given back since.
  void give_back(PageId page) { free_.push_back(page); }

 private:
  std::int64_t page_size_;
  std::int64_t num_usable_;
  std::vector<PageId> free_;  // taken from the back
};

}  // namespace tessera
