// Results of one start that later starts reuse: costs of forwards, and the matmul algorithms that libraries chose. Both
// are kept under content hashes in the profile cache (compile/profile_cache.h), so that another model, device, version
// or plan does not find them.
//
//   EnginePlan plan = TRY(plan_engine(options, device));
//   ProfileStore store(options, plan, device);
//   store.restore_algorithms();            // before anything is bound
//   runner->set_costs(store.load_costs());
//   …
//   store.save(runner->costs());           // after measurements, when there is time
//
// No function fails: an entry that cannot be written or read is a warning, once, and the start goes on without it.
// Threads: the engine's.
#pragma once

#include <map>
#include <optional>

#include "tessera/base/hash.h"
#include "tessera/base/json.h"
#include "tessera/compile/profile_cache.h"
#include "tessera/device/device.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/ops/contract/device_registry.h"
#include "tessera/ops/fused/row_schedules.h"
#include "tessera/runner/dispatch/costs.h"

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
  // Stores nothing where options.cache_dir is empty.
  ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device);
  // The same with a backend of the caller's, which outlives the store.
  ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
               const Backend& backend);

  // options.known_costs, or the stored costs; empty where there are none, and where options.graphs.measure_costs is off
  // or the engine is deterministic.
  CostTable load_costs();
  // Gives the backend the algorithms that were chosen or measured before, not on several nodes, whose caches differ:
  // all of a model's ranks have to compute alike. And gives row_schedules() what was measured of generated kernels.
  void restore_algorithms();
  // Entries found by loading and restoring.
  std::int64_t cache_hits() const { return cache_.hits() + (known_ && !known_->empty() ? 1 : 0); }
  // Measures other algorithms for one matmul, which later starts will use. False where none is left, where there is no
  // cache, where load_costs() gives none, and on several nodes. Precondition: nothing runs on `device`.
  Result<bool> measure_algorithms(Device& device);
  std::int64_t measured_algorithms() const { return measured_algorithms_; }
  // The same of the schedules of one generated kernel (ops/fused/row_tuning.h), which all give the same bits: what is
  // bound from then on has the fastest, on several nodes, too.
  Result<bool> measure_schedules(Device& device);
  std::int64_t measured_schedules() const { return measured_schedules_; }
  // The schedules that were measured before, of all models on this device; empty where measuring is off.
  std::map<RowProblem, MeasuredSchedules> load_schedules();
  // Writes the entries that differ from those stored.
  void save(const CostTable& costs);

 private:
  void save_schedules();
  void save_if_new(std::string_view kind, const Hash128& key, Json value, Json& kept);

  bool wanted_ = true;
  bool one_node_ = true;
  std::int64_t measured_algorithms_ = 0;
  std::int64_t measured_schedules_ = 0;
  const Backend* backend_ = nullptr;
  std::optional<CostTable> known_;  // read from the cache before this store was made
  ProfileKeys keys_;
  ProfileCache cache_;
  Json kept_costs_;  // as last read from or written to the cache
  Json kept_algorithms_;
  Json kept_schedules_;
};

// plan_engine() with the stored costs: where the ladder is chosen by cost (PrefillSchedule::kAuto) and the cache has
// costs for these graphs, the plan is made again with them. options.known_costs receives what was found, so that the
// cache is read only once.
Result<EnginePlan> plan_engine_with_profile(EngineOptions& options, Device& device);

}  // namespace tessera
