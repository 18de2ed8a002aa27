#include "tessera/ops/contract/page_table.h"

#include <atomic>

namespace tessera {

PageTableNumber new_page_table_number() {
  static std::atomic<std::uint64_t> last{0};
  return PageTableNumber(last.fetch_add(1, std::memory_order_relaxed) + 1);
}

}  // namespace tessera
