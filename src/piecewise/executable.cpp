#include "tessera/piecewise/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/base/log.h"
#include "tessera/device/alignment.h"

namespace tessera {

std::string_view memory_plan_kind_name(MemoryPlanKind kind) {
  return kind == MemoryPlanKind::kPlanned ? "planned" : "isolated";
}

Result<std::unique_ptr<Executable>> Executable::create(StitchingGraph graph, const Compiler& compiler,
                                                       const ir::OpTable& ops, const ExecutionEnvironment& environment,
                                                       ExecutableOptions options) {
  std::unique_ptr<Executable> executable(new Executable(std::move(graph), environment, std::move(options)));
  executable->liveness_ = TRY(analyze_liveness(executable->graph_, ops));
  for (const Part& part : executable->graph_.parts) {
    executable->parts_.emplace_back(part.kind, part.name, TRY(compiler.compile(part.graph).with_context(part.name)));
  }
  TRY(executable->place_outputs());
  return executable;
}

// One after another from where the arena is free, each as large as the largest bucket makes it.
Status Executable::place_outputs() {
  std::int64_t offset = align_up(options_.reserved_bytes);
  for (const std::int32_t output : graph_.outputs) {
    output_offsets_.push_back(offset);
    offset += align_up(TRY(ir::size_bytes(graph_.slots[static_cast<std::size_t>(output)].type, options_.largest)));
  }
  return ok_status();
}

Result<MemoryPlan> Executable::plan(const ir::Bucket& bucket) const {
  for (std::size_t s = 0; s < bucket.sizes.size(); ++s) {
    if (bucket.sizes[s] > options_.largest.sizes[s]) {
      return internal_error(fmt::format("{}: bucket {} exceeds the largest, {}", graph_.name, bucket.to_string(),
                                        options_.largest.to_string()));
    }
  }
  std::vector<LiveRange> ranges = TRY(live_ranges(graph_, liveness_, bucket, output_offsets_));
  constexpr std::int32_t kLastStep = std::numeric_limits<std::int32_t>::max() - 1;
  if (options_.reserved_bytes > 0) {
    ranges.push_back({.bytes = options_.reserved_bytes, .first = 0, .last = kLastStep, .fixed_offset = 0});
  }
  return options_.planner(ranges);
}

Result<MemoryNeed> Executable::memory_need(const ir::Bucket& bucket) const {
  const MemoryPlan planned = TRY(plan(bucket));
  MemoryNeed need{.arena_bytes = planned.size_bytes, .lower_bound_bytes = planned.lower_bound_bytes};
  for (const Liveness::Range& r : liveness_.ranges) {
    need.unshared_bytes += align_up(TRY(ir::size_bytes(graph_.slots[static_cast<std::size_t>(r.slot)].type, bucket)));
  }
  need.workspace_bytes = TRY(workspace_bytes(bucket));
  return need;
}

Result<std::int64_t> Executable::workspace_bytes(const ir::Bucket& bucket) const {
  std::size_t most = 0;
  for (const PartBackend& part : parts_) {
    most = std::max(most,
                    TRY(part.program().workspace_bytes(bucket, env_.device, env_.context).with_context(part.name())));
  }
  return static_cast<std::int64_t>(most);
}

Status Executable::resolve_externals(const ir::Bucket& bucket, std::vector<std::byte*>& addresses) const {
  for (std::size_t s = 0; s < graph_.slots.size(); ++s) {
    const Slot& slot = graph_.slots[s];
    if (slot.kind == ir::ValueKind::kResult) continue;
    addresses[s] = env_.externals.find(slot.name, bucket);
    if (addresses[s] == nullptr) {
      return internal_error(
          fmt::format("{}: no address is known for {} %{}", graph_.name, ir::value_kind_name(slot.kind), slot.name));
    }
  }
  return ok_status();
}

Result<std::vector<std::byte*>> Executable::planned_addresses(const ir::Bucket& bucket) {
  const MemoryPlan planned = TRY(plan(bucket));
  for (std::size_t r = 0; r < liveness_.ranges.size(); ++r) {
    const Slot& slot = graph_.slots[static_cast<std::size_t>(liveness_.ranges[r].slot)];
    const std::int64_t end = planned.offsets[r] + TRY(ir::size_bytes(slot.type, bucket));
    if (planned.offsets[r] < 0 || end > planned.size_bytes) {
      return internal_error(fmt::format("{} at {}: %{} at offset {} lies outside the plan's {} bytes", graph_.name,
                                        bucket.to_string(), slot.name, planned.offsets[r], planned.size_bytes));
    }
  }
  TRY(env_.arena.grow(static_cast<std::size_t>(planned.size_bytes)));
  std::vector<std::byte*> addresses(graph_.slots.size(), nullptr);
  for (std::size_t s = 0; s < addresses.size(); ++s) {
    const std::int32_t range = liveness_.range_of_slot[s];
    if (range >= 0) addresses[s] = env_.arena.base() + planned.offsets[static_cast<std::size_t>(range)];
  }
  return addresses;
}

// What binding the slot anew would give it.
std::byte* Executable::address_now(const ir::Bucket& bucket, const BoundBucket& entry, std::size_t slot) const {
  if (graph_.slots[slot].kind == ir::ValueKind::kResult)
    return entry.isolated != nullptr ? entry.slot_addresses[slot] : env_.arena.base() + entry.slot_offsets[slot];
  return env_.externals.find(graph_.slots[slot].name, bucket);
}

Result<std::vector<std::byte*>> Executable::isolated_addresses(const ir::Bucket& bucket, IsolatedMemory& memory) {
  std::vector<std::byte*> of_range;
  for (const Liveness::Range& r : liveness_.ranges) {
    const Slot& slot = graph_.slots[static_cast<std::size_t>(r.slot)];
    const std::int64_t bytes = TRY(ir::size_bytes(slot.type, bucket));
    of_range.push_back(TRY(memory.allocate(slot.name, static_cast<std::size_t>(bytes), env_.stream)));
  }
  std::vector<std::byte*> addresses(graph_.slots.size(), nullptr);
  for (std::size_t s = 0; s < addresses.size(); ++s) {
    const std::int32_t range = liveness_.range_of_slot[s];
    if (range >= 0) addresses[s] = of_range[static_cast<std::size_t>(range)];
  }
  return addresses;
}

Status Executable::bind(const ir::Bucket& bucket) {
  drop(bucket);
  Status status = bind_parts(bucket);
  if (status.ok()) {
    ++num_binds_;
    log_debug("compile", "{}: bound for {}", graph_.name, bucket.to_string());
  } else {
    drop(bucket);  // parts that were bound before the one that failed
  }
  return status;
}

Status Executable::bind_parts(const ir::Bucket& bucket) {
  BoundBucket entry;
  if (options_.memory == MemoryPlanKind::kIsolated) {
    entry.isolated = std::make_unique<IsolatedMemory>(env_.device);
    entry.slot_addresses = TRY(isolated_addresses(bucket, *entry.isolated));
  } else {
    entry.slot_addresses = TRY(planned_addresses(bucket));
    for (const std::byte* address : entry.slot_addresses)
      entry.slot_offsets.push_back(address == nullptr ? -1 : address - env_.arena.base());
  }
  TRY(resolve_externals(bucket, entry.slot_addresses));
  TRY(env_.workspace.grow(static_cast<std::size_t>(TRY(workspace_bytes(bucket)))));
  entry.workspace = env_.workspace.base();

  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = graph_.parts[p];
    std::vector<std::byte*> addresses(part.slots.size());
    std::transform(part.slots.begin(), part.slots.end(), addresses.begin(),
                   [&](std::int32_t slot) { return entry.slot_addresses[static_cast<std::size_t>(slot)]; });
    TRY(parts_[p].bind({.bucket = bucket,
                        .addresses = addresses,
                        .workspace = entry.workspace,
                        .device = env_.device,
                        .context = env_.context}));
  }
  for (const std::int32_t output : graph_.outputs) {
    const auto slot = static_cast<std::size_t>(output);
    entry.outputs.push_back(TRY(make_view(graph_.slots[slot].type, bucket, entry.slot_addresses[slot])));
  }
  bound_.emplace(bucket, std::move(entry));
  return ok_status();
}

void Executable::drop(const ir::Bucket& bucket) {
  if (captured(bucket)) --num_captured_;
  for (PartBackend& part : parts_) part.drop(bucket);
  bound_.erase(bucket);
}

void Executable::begin_forward(const ir::Bucket& bucket) const {
  if (env_.history == nullptr) return;
  env_.history->begin_forward(options_.reserved_bytes);
  if (const auto entry = bound_.find(bucket); entry != bound_.end())
    entry->second.generation = env_.history->generation();
}

Status Executable::run(const ir::Bucket& bucket) const {
  begin_forward(bucket);
  for (const PartBackend& part : parts_) TRY(part.enqueue(bucket, env_.stream));
  return ok_status();
}

Status Executable::capture(const ir::Bucket& bucket) {
  const auto entry = bound_.find(bucket);
  if (entry == bound_.end())
    return internal_error(fmt::format("{} is not bound for {}", graph_.name, bucket.to_string()));
  if (entry->second.captured) return ok_status();
  for (PartBackend& part : parts_) {
    if (Status status = part.capture(bucket, env_.stream); !status.ok()) {
      // A forward that is part graph, part eager would hide the failure.
      for (PartBackend& captured : parts_) captured.drop_graph(bucket);
      return status;
    }
  }
  entry->second.captured = true;
  ++num_captured_;
  return ok_status();
}

Status Executable::replay(const ir::Bucket& bucket) const {
  begin_forward(bucket);
  for (const PartBackend& part : parts_) TRY(part.replay(bucket, env_.stream));
  return ok_status();
}

bool Executable::captured(const ir::Bucket& bucket) const {
  const auto entry = bound_.find(bucket);
  return entry != bound_.end() && entry->second.captured;
}

Result<OutputView> Executable::output(const ir::Bucket& bucket, std::size_t index) const {
  const auto entry = bound_.find(bucket);
  if (entry == bound_.end())
    return internal_error(fmt::format("{} is not bound for {}", graph_.name, bucket.to_string()));
  return OutputView{{entry->second.outputs[index]}, entry->second.generation};
}

Result<TensorView> Executable::value(const ir::Bucket& bucket, std::size_t part, ir::ValueId id) const {
  const auto entry = bound_.find(bucket);
  if (entry == bound_.end())
    return internal_error(fmt::format("{} is not bound for {}", graph_.name, bucket.to_string()));
  const Part& of = graph_.parts[part];
  return make_view(of.graph.value(id).type, bucket,
                   entry->second.slot_addresses[static_cast<std::size_t>(of.slots[id.index()])]);
}

Status Executable::check_addresses(const ir::Bucket& bucket) const {
  const auto found = bound_.find(bucket);
  if (found == bound_.end())
    return internal_error(fmt::format("{} is not bound for {}", graph_.name, bucket.to_string()));
  const BoundBucket& entry = found->second;
  const auto differs = [&](const std::string& part, const std::string& what, const std::byte* bound,
                           const std::byte* now) {
    return internal_error(fmt::format("{}: {} at {} was {} with {} at {}, which is at {} now", graph_.name, part,
                                      bucket.to_string(), entry.captured ? "captured" : "bound", what, fmt::ptr(bound),
                                      fmt::ptr(now)));
  };
  for (const Part& part : graph_.parts) {
    for (std::size_t v = 0; v < part.slots.size(); ++v) {
      const auto slot = static_cast<std::size_t>(part.slots[v]);
      const std::byte* now = address_now(bucket, entry, slot);
      if (entry.slot_addresses[slot] == now) continue;
      const ir::Value& value = part.graph.values[v];
      return differs(part.name, fmt::format("{} %{}", ir::value_kind_name(graph_.slots[slot].kind), value.name),
                     entry.slot_addresses[slot], now);
    }
    if (entry.workspace != env_.workspace.base())
      return differs(part.name, "the workspace", entry.workspace, env_.workspace.base());
  }
  return ok_status();
}

Status Executable::poison(const ir::Bucket& bucket) {
  const auto entry = bound_.find(bucket);
  if (entry == bound_.end())
    return internal_error(fmt::format("{} is not bound for {}", graph_.name, bucket.to_string()));
  if (entry->second.isolated != nullptr) return entry->second.isolated->poison(env_.stream);
  const auto kept = std::min(static_cast<std::size_t>(options_.reserved_bytes), env_.arena.size());
  return env_.stream.fill(env_.arena.base() + kept, IsolatedMemory::kPoison, env_.arena.size() - kept);
}

Status Executable::check_guards(const ir::Bucket& bucket) const {
  const auto entry = bound_.find(bucket);
  if (entry == bound_.end() || entry->second.isolated == nullptr)
    return internal_error(fmt::format("{}: {} has no isolated memory", graph_.name, bucket.to_string()));
  return entry->second.isolated->check_guards(env_.stream);
}

std::int64_t Executable::num_graphs() const {
  std::int64_t graphs = 0;
  for (const auto& [bucket, entry] : bound_) {
    if (!entry.captured) continue;
    for (const PartBackend& part : parts_) graphs += part.captured(bucket) ? 1 : 0;
  }
  return graphs;
}

GraphNeed Executable::graph_need() const {
  GraphNeed need;
  for (const PartBackend& part : parts_) {
    if (!part.recordable()) continue;
    ++need.graphs;
    need.operators += std::ssize(part.program().steps());
  }
  return need;
}

GraphStats Executable::graph_stats(const ir::Bucket& bucket) const {
  GraphStats total;
  for (const PartBackend& part : parts_) {
    const GraphStats stats = part.graph_stats(bucket);
    total.nodes += stats.nodes;
    total.bytes += stats.bytes;
  }
  return total;
}

GraphStats Executable::graph_stats() const {
  GraphStats total;
  for (const PartBackend& part : parts_) {
    const GraphStats stats = part.graph_stats();
    total.nodes += stats.nodes;
    total.bytes += stats.bytes;
  }
  return total;
}

}  // namespace tessera
