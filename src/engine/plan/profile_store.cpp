#include "tessera/engine/plan/profile_store.h"

#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/compile/pass.h"
#include "tessera/ir/text.h"
#include "tessera/ops/fused/row_tuning.h"

namespace tessera {
namespace {

constexpr std::string_view kCosts = "costs";
constexpr std::string_view kAlgorithms = "linears";
constexpr std::string_view kSchedules = "schedules";

// Returns the device type's backend, or an empty backend without versions and algorithms if there is none.
const Backend& backend_or_none(const DeviceRegistry& devices, std::string_view type) {
  static const Backend none;
  const Result<const Backend*> backend = devices.backend(type);
  return backend.ok() ? **backend : none;
}

void warn(const Status& status) {
  if (!status.ok()) log_warn("cache", "measurements stored by an earlier start are not used: {}", status.message());
}

}  // namespace

ProfileKeys profile_keys(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
                         const Backend& backend) {
  Hasher machine;
  machine.add(kBackendInterface);  // names this program's version and compiler
  machine.add(device.type);
  machine.add(device.name);
  machine.add(device.compute_capability);  // the choice of kernels depends on it
  machine.add(backend.versions == nullptr ? std::string() : backend.versions());

  for (const LoadedPlugin& plugin : options.registry->plugins) machine.add(plugin.content.hex());

  Hasher costs = machine;
  for (const ir::Graph* graph : {&plan.graphs.body, &plan.graphs.head, &plan.graphs.sampler,
                                 &plan.graphs.prefill_body(), &plan.graphs.prefill_head()})
    costs.add(ir::to_text(*graph));
  // Adds the versions of the passes too, so that a new version of a pass invalidates the costs even if it makes the
  // same graphs.
  const Result<Hash128> passes = passes_hash({.disabled = options.graphs.disabled_passes}, options.registry->passes);
  costs.add(passes.ok() ? passes->hex() : std::string());
  costs.add(plan.runner.compiler);
  costs.add(plan.runner.decode_compiler);
  costs.add(plan.runner.decode_compiler_max);
  costs.add(ir::dtype_name(plan.model.dtype));
  costs.add(plan.model.tp_rank);
  costs.add(plan.model.tp_size);
  costs.add(plan.model.ep_size);
  costs.add(plan.model.pp_size);
  costs.add(plan.runner.page_size);
  costs.add(plan.runner.memory_plan);
  costs.add(plan.runner.deterministic);
  costs.add(plan.runner.halves_from);
  costs.add(plan.runner.debug);
  costs.add(plan.runner.max_drafts > 0);
  costs.add(plan.runner.split_ops.size());
  for (const std::string& op : plan.runner.split_ops) costs.add(op);
  return {.costs = costs.finish(), .algorithms = machine.finish()};
}

ProfileStore::ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device)
    : ProfileStore(options, plan, device, backend_or_none(options.registry->devices, device.type)) {}

ProfileStore::ProfileStore(const EngineOptions& options, const EnginePlan& plan, const DeviceProperties& device,
                           const Backend& backend)
    : wanted_(plan.runner.measure_costs),
      one_node_(options.nnodes == 1),
      backend_(&backend),
      known_(options.known_costs),
      keys_(options.cache_dir.empty() ? ProfileKeys{} : profile_keys(options, plan, device, backend)),
      cache_({.root = options.cache_dir}) {}

CostTable ProfileStore::load_costs() {
  if (!wanted_) return {};
  if (known_) {
    if (!known_->empty()) kept_costs_ = known_->to_json();
    return *known_;
  }
  const std::optional<Json> kept = cache_.load(kCosts, keys_.costs);
  if (!kept) return {};
  Result<CostTable> costs = CostTable::from_json(*kept);
  warn(costs.status());
  if (!costs.ok()) return {};
  kept_costs_ = *kept;
  return *std::move(costs);
}

std::map<RowProblem, MeasuredSchedules> ProfileStore::load_schedules() {
  if (!wanted_) return {};
  const std::optional<Json> kept = cache_.load(kSchedules, keys_.algorithms);
  if (!kept) return {};
  Result<std::map<RowProblem, MeasuredSchedules>> schedules = RowSchedules::from_json(*kept);
  warn(schedules.status());
  if (!schedules.ok()) return {};
  kept_schedules_ = *kept;
  return *std::move(schedules);
}

void ProfileStore::restore_algorithms() {
  for (auto& [problem, measured] : load_schedules()) row_schedules().learn(problem, std::move(measured));
  if (!one_node_ || backend_->import_algorithms == nullptr) return;
  const std::optional<Json> kept = cache_.load(kAlgorithms, keys_.algorithms);
  if (!kept) return;
  const Status status = backend_->import_algorithms(*kept);
  warn(status);
  if (status.ok()) kept_algorithms_ = *kept;
}

Result<bool> ProfileStore::measure_algorithms(Device& device) {
  if (!wanted_ || !one_node_ || !cache_.enabled() || backend_->measure_algorithms == nullptr) return false;
  const bool measured = TRY(backend_->measure_algorithms(device));
  measured_algorithms_ += measured ? 1 : 0;
  return measured;
}

Result<bool> ProfileStore::measure_schedules(Device& device) {
  if (!wanted_ || !cache_.enabled()) return false;
  const bool measured = TRY(measure_row_schedules(device));
  measured_schedules_ += measured ? 1 : 0;
  return measured;
}

void ProfileStore::save_schedules() {
  if (!wanted_ || row_schedules().measured().empty()) return;
  // Adds the measurements that another process has stored since the start, so that this save does not drop them.
  if (const std::optional<Json> there = cache_.look(kSchedules, keys_.algorithms)) {
    const Status learnt = row_schedules().remember(*there);
    if (!learnt.ok())
      log_debug("cache", "the stored measurements cannot be read and are replaced: {}", learnt.message());
  }
  save_if_new(kSchedules, keys_.algorithms, row_schedules().to_json(), kept_schedules_);
}

void ProfileStore::save(const CostTable& costs) {
  if (wanted_ && !costs.empty()) save_if_new(kCosts, keys_.costs, costs.to_json(), kept_costs_);
  save_schedules();
  if (!one_node_ || backend_->export_algorithms == nullptr) return;
  // Adds the measurements that another process has stored since the start, so that this save does not drop them. If two
  // processes write at the same time, the last one wins.
  if (const std::optional<Json> there = cache_.look(kAlgorithms, keys_.algorithms)) {
    const Status learnt = backend_->learn_algorithms == nullptr ? ok_status() : backend_->learn_algorithms(*there);
    if (!learnt.ok())
      log_debug("cache", "the stored measurements cannot be read and are replaced: {}", learnt.message());
  }
  Json algorithms = backend_->export_algorithms();
  if (!algorithms.as_array().empty())
    save_if_new(kAlgorithms, keys_.algorithms, std::move(algorithms), kept_algorithms_);
}

void ProfileStore::save_if_new(std::string_view kind, const Hash128& key, Json value, Json& kept) {
  if (value == kept) return;
  cache_.save(kind, key, value);
  kept = std::move(value);
}

Result<EnginePlan> plan_engine_with_profile(EngineOptions& options, Device& device) {
  EnginePlan plan = TRY(plan_engine(options, device));
  const bool by_cost = options.graphs.schedule == PrefillSchedule::kAuto && options.graphs.piecewise_tokens.empty();
  if (!by_cost || options.known_costs) return plan;
  options.known_costs = ProfileStore(options, plan, device.properties()).load_costs();
  if (options.known_costs->empty()) return plan;
  return plan_engine(options, device);
}

}  // namespace tessera
