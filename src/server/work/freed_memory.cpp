#include "tessera/server/work/freed_memory.h"

#include <malloc.h>

#include <utility>

namespace tessera {
namespace {

constexpr double kInterval = 1;  // seconds between two checks
// Memory is trimmed only if at least this many bytes were freed since the last trim.
constexpr std::int64_t kWorthwhile = std::int64_t{8} << 20;
// While requests hold at least kWorthwhile bytes, a check postpones the trim, but at most kPatience - 1 times.
constexpr int kPatience = 10;
// Once 1 / kPartOfBudget of the budget was freed since the last trim, the next check does not postpone the trim,
// because the heaps may still hold all this freed memory.
constexpr std::int64_t kPartOfBudget = 8;

}  // namespace

void limit_free_ends() {
  constexpr int kBytes = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kBytes);
  mallopt(M_TRIM_THRESHOLD, kBytes);
}

FreedMemory::FreedMemory(const MemoryBudget& budget, std::function<void(double, std::function<void()>)> after,
                         std::function<void(std::function<void()>)> elsewhere)
    : budget_(budget), after_(std::move(after)), elsewhere_(std::move(elsewhere)) {}

void FreedMemory::request_came() {
  if (std::exchange(waiting_, true)) return;
  after_(kInterval, [this] { look(); });
}

void FreedMemory::look() {
  waiting_ = false;
  const std::int64_t used = budget_.used();
  const std::int64_t freed = budget_.charged() - used;
  if (used > 0) request_came();  // checks again, because the memory in use now is freed later
  if (freed - trimmed_at_ < kWorthwhile) return;
  const bool is_much = freed - trimmed_at_ >= budget_.limit() / kPartOfBudget;
  if (used >= kWorthwhile && !is_much && ++looks_ < kPatience) return;
  looks_ = 0;
  trimmed_at_ = freed;
  elsewhere_([] { malloc_trim(0); });
}

}  // namespace tessera
