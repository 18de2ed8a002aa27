#include "tessera/engine/report/idle_work.h"

namespace tessera {

Result<bool> IdleWork::work() {
  ProfileStore& profiles = *model_.profiles;
  const bool left = TRY(model_.runner->idle_work()) || TRY(profiles.measure_algorithms(*model_.device)) ||
                    TRY(profiles.measure_schedules(*model_.device));
  report_.worked_idly();
  // Results are saved at this interval, so that a killed process loses few of them.
  constexpr std::chrono::milliseconds kSaveEvery(500);
  const auto now = std::chrono::steady_clock::now();
  if (!left || now >= next_save_) {
    profiles.save(model_.runner->costs());
    next_save_ = now + kSaveEvery;
  }
  return left;
}

}  // namespace tessera
