#include "tessera/runner/verify/debug_mode.h"

#include <fmt/format.h>

namespace tessera {

Status DebugMode::before(const GraphRunner& runner, std::int64_t size) const {
  if (paused_) return ok_status();
  const ir::Bucket bucket = runner.bucket(size);
  TRY(runner.executable().check_addresses(bucket).with_context(runner.name()));
  return runner.executable().poison(bucket);
}

Status DebugMode::after(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows) {
  if (paused_) return ok_status();
  const std::string found = TRY(nans_.in_outputs(runner, size, real_rows));
  if (found.empty()) return ok_status();
  const std::string origin = can_run_again_
                                 ? TRY(nans_.origin(runner, size, real_rows))
                                 : std::string("which operator made it is not searched for on several ranks");
  return internal_error(
      fmt::format("{} at {}: {} is NaN; {}", runner.name(), runner.bucket(size).to_string(), found, origin));
}

}  // namespace tessera
