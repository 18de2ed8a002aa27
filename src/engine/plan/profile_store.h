// Stores results of one start for later starts: costs of forwards, the matmul algorithms that libraries chose, and the
// measured schedules of generated kernels. All are stored under content hashes in the profile cache
// (compile/profile_cache.h). A start finds costs only if they come from the same model, device, versions and plan. It
// finds algorithms and schedules of any model, if they come from the same device and versions.
//
//   EnginePlan plan = TRY(plan_engine(options, device));
//   ProfileStore store(options, plan, device);
//   store.restore_algorithms();            // before anything is bound
//   runner->set_costs(store.load_costs());
//   …
//   store.save(runner->costs());           // after measurements, when there is time
//
// No function fails because of the cache: an entry that cannot be written or read causes one warning, and the start
// continues without it. Only the engine's thread uses this class.
#pragma once

#include <map>
#include <optional>

#include "tessera/base/hash.h"
#include "tessera/base/json.h"
#include "tessera/compile/profile_cache.h"
#include "tessera/device/device.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/ops/device_registry.h"
#include "tessera/ops/fused/row_schedules.h"
#include "tessera/runner/dispatch/costs.h"

namespace tessera {

struct ProfileKeys {
  Hash128 costs;  // hash of device, versions, graphs, and how graphs are compiled and run, but not of captured sizes
  Hash128 algorithms;  // hash of device and versions
};
// Returns the keys under which the results of a start are stored. `backend` is the device's backend.
ProfileKeys profile_keys(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
                         const Backend& backend);

class ProfileStore {
 public:
  // Stores nothing if options.cache_dir is empty.
  ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device);
  // Uses `backend`, which must outlive the store, instead of the registry's backend for the device.
  ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
               const Backend& backend);

  // Returns options.known_costs or the stored costs. Returns an empty table if there are none, or if the plan measures
  // no costs (RunnerOptions::measure_costs).
  CostTable load_costs();
  // Passes to the backend the algorithms that earlier starts chose or measured. Passes to row_schedules() the
  // measurements of generated kernels. On several nodes, passes no algorithms, because all ranks must compute alike but
  // the nodes' caches differ.
  void restore_algorithms();
  // Returns the number of entries found by loading and restoring.
  std::int64_t cache_hits() const { return cache_.hits() + (known_ && !known_->empty() ? 1 : 0); }
  // Measures the algorithms for one matmul that has not been measured yet. Later starts use the fastest one. Returns
  // false, and measures nothing, if no such matmul is left, if there is no cache, if the plan measures no costs, or if
  // there are several nodes. Precondition: nothing runs on `device`.
  Result<bool> measure_algorithms(Device& device);
  std::int64_t measured_algorithms() const { return measured_algorithms_; }
  // Measures alternative schedules of one generated kernel (ops/fused/row_tuning.h), like measure_algorithms(). All
  // schedules give the same bits, so this works on several nodes too. Kernels bound afterwards use the fastest
  // schedule.
  Result<bool> measure_schedules(Device& device);
  std::int64_t measured_schedules() const { return measured_schedules_; }
  // Returns all schedules measured on this device before, for any model; empty if measuring is off.
  std::map<RowProblem, MeasuredSchedules> load_schedules();
  // Writes the entries that differ from the stored ones.
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
  Json kept_costs_;  // the costs last read from or written to the cache
  Json kept_algorithms_;
  Json kept_schedules_;
};

// Plans an engine with plan_engine(). If costs decide the ladder of sizes (PrefillSchedule::kAuto) and the profile
// cache has costs for the plan's graphs, plans again with these costs. Puts the costs into options.known_costs, so that
// the cache is read only once.
Result<EnginePlan> plan_engine_with_profile(EngineOptions& options, Device& device);

}  // namespace tessera
