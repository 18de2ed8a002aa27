#include "tessera/piecewise/arena_history.h"

#include <fmt/format.h>

namespace tessera {

void ArenaHistory::begin_forward(std::int64_t kept_bytes) {
  while (!last_.empty() && last_.back().kept_bytes >= kept_bytes) last_.pop_back();
  last_.push_back({kept_bytes, ++generation_});
}

Status ArenaHistory::check_fresh(const OutputView& view) const {
  if (view.data.handle != arena_->base().handle) return ok_status();
  const std::int64_t end = static_cast<std::int64_t>(view.data.offset) + view.bytes();
  for (const Forward& forward : last_) {
    if (forward.generation > view.generation && forward.kept_bytes < end) {
      return internal_error(
          fmt::format("a view of forward {} is used after forward {} of its arena, which overwrote it from byte {} on",
                      view.generation, forward.generation, forward.kept_bytes));
    }
  }
  return ok_status();
}

}  // namespace tessera
