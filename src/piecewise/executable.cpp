#include "tessera/piecewise/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/log.h"
#include "tessera/ops/contract/forward_states.h"

namespace tessera {

std::string_view memory_plan_kind_name(MemoryPlanKind kind) {
  return kind == MemoryPlanKind::kPlanned ? "planned" : "isolated";
}

Result<std::unique_ptr<Executable>> Executable::create(StitchingGraph graph, const Compiler& compiler,
                                                       const ExecutionEnvironment& environment,
                                                       ExecutableOptions options,
                                                       std::optional<CompilerForSome> for_some) {
  std::unique_ptr<Executable> executable(new Executable(std::move(graph), environment, std::move(options)));
  const ForwardStates::Scope compiling(environment.context.states, ForwardState::kCompiling);
  TRY(executable->compile(compiler));
  if (for_some) {
    TRY(executable->compile(for_some->compiler));
    executable->serves_ = std::move(for_some->serves);
  }
  return executable;
}

Status Executable::compile(const Compiler& compiler) {
  auto made = std::make_unique<Variant>();
  made->forward = TRY(compile_forward(graph_, compiler));
  made->memory = TRY(ForwardMemory::create(
      made->forward,
      {.largest = options_.largest, .reserved_bytes = options_.reserved_bytes, .planner = options_.planner}));
  variants_.push_back(std::move(made));
  return ok_status();
}

CompileCounts Executable::compile_counts() const {
  CompileCounts sum;
  for (const std::unique_ptr<Variant>& of : variants_) {
    sum.compiled += of->forward.counts.compiled;
    sum.loaded += of->forward.counts.loaded;
    sum.shared += of->forward.counts.shared;
  }
  return sum;
}

Result<MemoryNeed> Executable::memory_need(const ir::Bucket& bucket) const {
  const ForwardMemory& memory = *variant(bucket).memory;
  const SlotPlan plan = TRY(memory.plan(bucket));
  const std::int64_t unshared = TRY(memory.unshared_bytes(bucket));
  const std::int64_t workspace = TRY(workspace_bytes(bucket));
  return MemoryNeed{.arena_bytes = plan.size_bytes,
                    .lower_bound_bytes = plan.lower_bound_bytes,
                    .unshared_bytes = unshared,
                    .workspace_bytes = workspace};
}

Result<std::int64_t> Executable::workspace_bytes(const ir::Bucket& bucket) const {
  std::size_t most = 0;
  std::set<const Program*> known;  // parts that share a program need the same workspace
  for (const CompiledPart& part : parts(bucket)) {
    if (!known.insert(part.program.get()).second) continue;
    most =
        std::max(most, TRY(part.program->workspace_bytes(bucket, env_.device, env_.context).with_context(part.name)));
  }
  return static_cast<std::int64_t>(most);
}

// Fills in the addresses of inputs, weights and states. Returns an error if an address is missing. The addresses of
// results are not changed.
Status Executable::resolve_externals(const ir::Bucket& bucket, std::vector<DeviceAddress>& addresses) const {
  const CompiledForward& forward = compiled(bucket);
  for (std::size_t s = 0; s < addresses.size(); ++s) {
    const Slot& slot = forward.slots[static_cast<std::size_t>(forward.memory_of[s])];
    if (slot.kind == ir::ValueKind::kResult) continue;
    addresses[s] = env_.externals.find(slot.name, bucket);
    if (!addresses[s]) {
      return internal_error(
          fmt::format("{}: no address is known for {} %{}", graph_.name, ir::value_kind_name(slot.kind), slot.name));
    }
  }
  return ok_status();
}

Result<ForwardAddresses> Executable::planned_addresses(const ir::Bucket& bucket) {
  SlotPlan plan = TRY(variant(bucket).memory->plan(bucket));
  TRY(env_.arena.grow(static_cast<std::size_t>(plan.size_bytes)));
  ForwardAddresses addresses{.slots = {}, .arena_offsets = std::move(plan.offsets)};
  for (const std::int64_t offset : addresses.arena_offsets)
    addresses.slots.push_back(offset < 0 ? DeviceAddress{} : env_.arena.base() + offset);
  return addresses;
}

Result<ForwardAddresses> Executable::isolated_addresses(const ir::Bucket& bucket) {
  ForwardAddresses addresses{.isolated = std::make_unique<IsolatedMemory>(env_.device)};
  const Liveness& liveness = variant(bucket).memory->liveness();
  std::vector<DeviceAddress> of_range;
  for (const Liveness::Range& r : liveness.ranges) {
    const Slot& slot = compiled(bucket).slots[static_cast<std::size_t>(r.slot)];
    const std::int64_t bytes = TRY(ir::size_bytes(slot.type, bucket));
    of_range.push_back(TRY(addresses.isolated->allocate(slot.name, static_cast<std::size_t>(bytes), env_.stream)));
  }
  for (const std::int32_t range : liveness.range_of_slot)
    addresses.slots.push_back(range < 0 ? DeviceAddress{} : of_range[static_cast<std::size_t>(range)]);
  addresses.arena_offsets.assign(addresses.slots.size(), -1);
  return addresses;
}

// Returns the address that the slot would get if the bucket were bound again.
DeviceAddress Executable::address_now(const ir::Bucket& bucket, const ForwardAddresses& bound, std::size_t slot) const {
  const CompiledForward& forward = compiled(bucket);
  const Slot& owner = forward.slots[static_cast<std::size_t>(forward.memory_of[slot])];
  if (owner.kind != ir::ValueKind::kResult) return env_.externals.find(owner.name, bucket);
  const std::int64_t offset = bound.arena_offsets[slot];
  return offset < 0 ? bound.slots[slot] : env_.arena.base() + offset;
}

Status Executable::bind(const ir::Bucket& bucket) {
  const ForwardStates::Scope compiling(env_.context.states, ForwardState::kCompiling);
  drop(bucket);
  ForwardAddresses addresses =
      TRY(options_.memory == MemoryPlanKind::kIsolated ? isolated_addresses(bucket) : planned_addresses(bucket));
  TRY(resolve_externals(bucket, addresses.slots));
  TRY(env_.workspace.grow(static_cast<std::size_t>(TRY(workspace_bytes(bucket)))));
  addresses.workspace = env_.workspace.base();
  bound_[bucket] = TRY(BoundForward::bind(compiled(bucket), bucket, std::move(addresses), env_.device, env_.context));
  ++num_binds_;
  log_debug("compile", "{}: bound for {}", graph_.name, bucket.to_string());
  return ok_status();
}

Result<BoundForward*> Executable::find(const ir::Bucket& bucket) const {
  const auto entry = bound_.find(bucket);
  if (entry != bound_.end()) return entry->second.get();
  return internal_error(fmt::format("{} is not bound for {}", graph_.name, bucket.to_string()));
}

void Executable::begin_forward(BoundForward& forward) const {
  if (env_.history == nullptr) return;
  env_.history->begin_forward(options_.reserved_bytes);
  forward.set_generation(env_.history->generation());
}

Status Executable::run(const ir::Bucket& bucket) const {
  BoundForward* const forward = TRY(find(bucket));
  begin_forward(*forward);
  const ForwardStates::Scope piecewise(piecewise_states(), ForwardState::kPiecewise);
  const bool first = !forward->captured() && forward->num_warm_ups() == 0;
  TRY(forward->run(env_.stream));
  if (first) forward->add_variants(env_.warm);
  return ok_status();
}

Result<bool> Executable::has_cold_kernels(const ir::Bucket& bucket) const {
  return TRY(find(bucket))->has_cold_kernels(env_.warm);
}

Status Executable::warm_up(const ir::Bucket& bucket) const {
  BoundForward* const forward = TRY(find(bucket));
  begin_forward(*forward);
  const ForwardStates::Scope piecewise(piecewise_states(), ForwardState::kPiecewise);
  return forward->warm_up(env_.warm, env_.stream);
}

Status Executable::capture(const ir::Bucket& bucket) {
  BoundForward* const forward = TRY(find(bucket));
  const ForwardStates::Scope piecewise(piecewise_states(), ForwardState::kPiecewise);
  const ForwardStates::Scope capturing(env_.context.states, ForwardState::kCapturing);
  return forward->capture(env_.backend, env_.stream);
}

Status Executable::capture_full(const ir::Bucket& bucket) {
  BoundForward* const forward = TRY(find(bucket));
  if (!can_be_full())
    return failed_precondition(
        fmt::format("{}: a full graph needs a forward that is cut into pieces and whose operators can all be captured",
                    graph_.name));
  const ForwardStates::Scope full(env_.context.states, ForwardState::kFull);
  const ForwardStates::Scope capturing(env_.context.states, ForwardState::kCapturing);
  return forward->capture_full(env_.backend, env_.stream);
}

bool Executable::has_full_graph(const ir::Bucket& bucket) const {
  const auto entry = bound_.find(bucket);
  return entry != bound_.end() && entry->second->has_full_graph();
}

void Executable::drop_full_graph(const ir::Bucket& bucket) {
  const auto entry = bound_.find(bucket);
  if (entry != bound_.end()) entry->second->drop_full_graph();
}

Status Executable::replay_full(const ir::Bucket& bucket) const {
  BoundForward* const forward = TRY(find(bucket));
  begin_forward(*forward);
  return forward->replay_full(env_.stream);
}

Status Executable::replay(const ir::Bucket& bucket) const {
  BoundForward* const forward = TRY(find(bucket));
  begin_forward(*forward);
  const ForwardStates::Scope piecewise(piecewise_states(), ForwardState::kPiecewise);
  return forward->replay(env_.stream);
}

Status Executable::run_in_parts(const ir::Bucket& bucket, bool graphs, const BoundForward::PartPassed& passed) const {
  BoundForward* const forward = TRY(find(bucket));
  begin_forward(*forward);
  const ForwardStates::Scope piecewise(piecewise_states(), ForwardState::kPiecewise);
  const bool first = !forward->captured() && forward->num_warm_ups() == 0;
  TRY(forward->run_in_parts(graphs, env_.stream, passed));
  if (first) forward->add_variants(env_.warm);
  return ok_status();
}

bool Executable::captured(const ir::Bucket& bucket) const {
  const auto entry = bound_.find(bucket);
  return entry != bound_.end() && entry->second->captured();
}

Result<OutputView> Executable::output(const ir::Bucket& bucket, std::size_t index) const {
  const BoundForward* const forward = TRY(find(bucket));
  return OutputView{{forward->outputs()[index]}, forward->generation()};
}

Status Executable::run_instruction(const ir::Bucket& bucket, std::size_t part, std::size_t instruction) const {
  const BoundForward* const forward = TRY(find(bucket));
  return forward->program(part).enqueue_instruction(instruction, env_.stream);
}

Result<bool> Executable::runs_later(const ir::Bucket& bucket, std::size_t part, std::size_t instruction) const {
  const BoundForward* const forward = TRY(find(bucket));
  return forward->program(part).op(instruction) == nullptr;
}

Status Executable::replay_part(const ir::Bucket& bucket, std::size_t part) const {
  const BoundForward* const forward = TRY(find(bucket));
  return forward->replay_part(part, env_.stream);
}

Result<TensorView> Executable::value(const ir::Bucket& bucket, std::size_t part, ir::ValueId id) const {
  const BoundForward* const forward = TRY(find(bucket));
  const CompiledPart& of = parts(bucket)[part];
  return make_view(of.program->value(id).type, bucket,
                   forward->addresses().slots[static_cast<std::size_t>(of.slots[id.index()])]);
}

Status Executable::check_addresses(const ir::Bucket& bucket) const {
  const BoundForward* const forward = TRY(find(bucket));
  const ForwardAddresses& bound = forward->addresses();
  const auto differs = [&](const CompiledPart& part, const std::string& what, DeviceAddress was, DeviceAddress now) {
    return internal_error(fmt::format("{}: {} at {} was {} with {} at {}, which is at {} now", graph_.name, part.name,
                                      bucket.to_string(), forward->captured() ? "captured" : "bound", what,
                                      address_text(was), address_text(now)));
  };
  for (const CompiledPart& part : parts(bucket)) {
    for (std::size_t v = 0; v < part.slots.size(); ++v) {
      const auto slot = static_cast<std::size_t>(part.slots[v]);
      const DeviceAddress now = address_now(bucket, bound, slot);
      if (bound.slots[slot] == now) continue;
      return differs(part,
                     fmt::format("{} %{}", ir::value_kind_name(compiled(bucket).slots[slot].kind), part.value_names[v]),
                     bound.slots[slot], now);
    }
    if (bound.workspace != env_.workspace.base())
      return differs(part, "the workspace", bound.workspace, env_.workspace.base());
  }
  return ok_status();
}

Result<std::vector<PartEntry>> Executable::entries(const ir::Bucket& bucket) const {
  const auto bound = bound_.find(bucket);
  return part_entries(compiled(bucket), *variant(bucket).memory, bucket,
                      bound == bound_.end() ? nullptr : bound->second.get());
}

Status Executable::poison(const ir::Bucket& bucket) {
  const BoundForward* const forward = TRY(find(bucket));
  if (forward->addresses().isolated != nullptr) return forward->addresses().isolated->poison(env_.stream);
  const auto kept = std::min(static_cast<std::size_t>(options_.reserved_bytes), env_.arena.size());
  return env_.stream.fill(env_.arena.base() + kept, IsolatedMemory::kPoison, env_.arena.size() - kept);
}

Status Executable::check_guards(const ir::Bucket& bucket) const {
  const BoundForward* const forward = TRY(find(bucket));
  if (forward->addresses().isolated == nullptr)
    return internal_error(fmt::format("{}: {} has no isolated memory", graph_.name, bucket.to_string()));
  return forward->addresses().isolated->check_guards(env_.stream);
}

GraphNeed Executable::graph_need(const ir::Bucket& bucket) const {
  GraphNeed need;
  for (const CompiledPart& part : parts(bucket)) {
    if (!part.recordable()) continue;
    ++need.graphs;
    need.operators += std::ssize(part.program->instructions);
    for (const Halves& run : part.program->halves)
      if (run.serve(bucket)) need.operators += static_cast<std::int64_t>(run.end - run.first);
  }
  return need;
}

GraphStats Executable::graph_stats(const ir::Bucket& bucket) const {
  const auto bound = bound_.find(bucket);
  return bound == bound_.end() ? GraphStats{} : bound->second->graph_stats();
}

GraphStats Executable::graph_stats() const {
  GraphStats total;
  for (const auto& [bucket, forward] : bound_) {
    const GraphStats stats = forward->graph_stats();
    total.nodes += stats.nodes;
    total.bytes += stats.bytes;
  }
  return total;
}

std::int64_t Executable::num_captured() const {
  return std::count_if(bound_.begin(), bound_.end(), [](const auto& entry) { return entry.second->captured(); });
}

std::int64_t Executable::num_graphs() const {
  std::int64_t graphs = 0;
  for (const auto& [bucket, forward] : bound_) graphs += forward->num_graphs();
  return graphs;
}

}  // namespace tessera
