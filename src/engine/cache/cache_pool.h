// The free pages of one cache group (a set of layers whose caches keep tokens by the same rule). Page 0 is reserved for
// padding and never handed out. In a group of recurrent states, a page is a slot for the state of one sequence or
// checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/ir/graph.h"

namespace tessera {

inline constexpr PageId kNoPage{0};  // the reserved page, which stands for none

struct CacheGroupOptions {
  std::string name = "full";  // name, kind and window are those of ir::CacheGroup
  ir::CacheGroup::Kind kind = ir::CacheGroup::Kind::kPaged;
  std::int64_t window = 0;
  std::int64_t num_pages = 1;   // number of pages, page 0 included
  std::int64_t page_bytes = 0;  // bytes of a page, over all layers of the group

  // Returns whether a sequence keeps pages for all of its tokens.
  bool keeps_all() const { return kind == ir::CacheGroup::Kind::kPaged || kind == ir::CacheGroup::Kind::kLatent; }
  bool is_window() const { return kind == ir::CacheGroup::Kind::kWindow; }
  bool is_state() const { return kind == ir::CacheGroup::Kind::kState; }
};

// Returns the largest number of pages that `window` consecutive tokens can lie in.
constexpr std::int64_t window_pages(std::int64_t window, std::int64_t page_size) {
  return (window - 1 + page_size - 1) / page_size + 1;
}

class CachePool {
 public:
  explicit CachePool(CacheGroupOptions options);

  const CacheGroupOptions& options() const { return options_; }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t num_usable() const { return num_usable_; }

  // Takes a free page. Precondition: num_free() > 0.
  PageId take();
  // Returns a page to the pool. Precondition: the page was taken and has not been given back since.
  void give_back(PageId page) { free_.push_back(page); }

 private:
  CacheGroupOptions options_;
  std::int64_t num_usable_;
  std::vector<PageId> free_;  // take() takes the last one
};

}  // namespace tessera
