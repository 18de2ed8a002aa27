// What of one start serves the next (E6): what forwards cost, and the matmul algorithms that libraries chose. Both
// under content hashes in the profile cache (compile/profile_cache.h), so that another model, device, version or plan
// finds nothing of it.
//
//   EnginePlan plan = TRY(plan_engine(options, device));
//   ProfileStore store(options, plan, device);
//   store.restore_algorithms();            // before anything is bound
//   runner->set_costs(store.load_costs());
//   …
//   store.save(runner->costs());           // after measurements, when there is time
//
// No function fails: what cannot be kept or read is a warning, once, and the start goes on without.
// Threads: the engine's.
#pragma once

#include <optional>

#include "tessera/base/hash.h"
#include "tessera/base/json.h"
#include "tessera/compile/profile_cache.h"
#include "tessera/device/device.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/ops/backend.h"
#include "tessera/runner/costs.h"

namespace tessera {

struct ProfileKeys {
  Hash128 costs;       // device, versions, graphs, and how they are compiled and run; not which sizes are captured
  Hash128 algorithms;  // device and versions
};
// `backend`: the device's.
ProfileKeys profile_keys(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
                         const Backend& backend);

class ProfileStore {
 public:
  // Keeps nothing where options.cache_dir is empty.
  ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device);
  // The same with a backend of the caller's, which outlives the store.
  ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
               const Backend& backend);

  // options.known_costs, or what was kept: empty where nothing was, and where options.graphs.measure_costs is off or
  // the engine is deterministic.
  CostTable load_costs();
  // Tells the backend what was chosen before.
  void restore_algorithms();
  // Entries that loading and restoring have found.
  std::int64_t cache_hits() const { return cache_.hits() + (known_ && !known_->empty() ? 1 : 0); }
  // Writes what differs from what is kept.
  void save(const CostTable& costs);

 private:
  void save_if_new(std::string_view kind, const Hash128& key, Json value, Json& kept);

  bool wanted_ = true;
  const Backend* backend_ = nullptr;
  std::optional<CostTable> known_;  // from a look at the cache before this store's
  ProfileKeys keys_;
  ProfileCache cache_;
  Json kept_costs_;  // as the cache has them, as far as this store knows
  Json kept_algorithms_;
};

// plan_engine() with what is known of the plan's costs: where the ladder is chosen by cost (PrefillSchedule::kAuto) and
// the cache has some for these graphs, the plan is made again with them. options.known_costs is what was found, if it
// was looked for: the cache is read, and warned of, once.
Result<EnginePlan> plan_engine_with_profile(EngineOptions& options, Device& device);

}  // namespace tessera
