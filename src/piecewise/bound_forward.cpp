#include "tessera/piecewise/bound_forward.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

Result<std::unique_ptr<BoundForward>> BoundForward::bind(const CompiledForward& forward, const ir::Bucket& bucket,
                                                         ForwardAddresses addresses, Device& device,
                                                         const ForwardContext& context) {
  std::unique_ptr<BoundForward> bound(new BoundForward(forward, bucket, std::move(addresses)));
  const ForwardAddresses& at = bound->addresses_;
  for (std::size_t p = 0; p < forward.parts.size(); ++p) {
    const CompiledPart& part = forward.parts[p];
    std::vector<DeviceAddress> values(part.slots.size());
    std::transform(part.slots.begin(), part.slots.end(), values.begin(),
                   [&](std::int32_t slot) { return at.slots[static_cast<std::size_t>(slot)]; });
    const BindTarget target{.bucket = bucket,
                            .addresses = values,
                            .workspace = at.workspace,
                            .device = device,
                            .context = context,
                            .names = part.value_names};
    bound->programs_.push_back(TRY(part.program->bind(target).with_context(bound->place(p))));
  }
  for (std::size_t p = 0; p < forward.parts.size(); ++p) bound->add_kernels(p, bound->steps_);
  for (const std::int32_t output : forward.outputs) {
    const auto slot = static_cast<std::size_t>(output);
    bound->outputs_.push_back(TRY(make_view(forward.slots[slot].type, bucket, at.slots[slot])));
  }
  return bound;
}

void BoundForward::add_kernels(std::size_t part, std::vector<Step>& steps) const {
  const BoundProgram& program = programs_[part];
  for (std::size_t i = 0; i < program.num_instructions(); ++i)
    if (const BoundOp* op = program.op(i); op != nullptr)
      steps.push_back({nullptr, op, static_cast<std::int32_t>(part), static_cast<std::int32_t>(i)});
}

std::string BoundForward::place(std::size_t part) const {
  return fmt::format("{} at {}", forward_.parts[part].name, bucket_.to_string());
}

Status BoundForward::walk(std::span<const Step> steps, Stream& stream) const {
  for (const Step& step : steps) {
    Status status = step.graph != nullptr ? step.graph->launch(stream) : step.op->enqueue(stream);
    if (!status.ok()) [[unlikely]]
      return failed(std::move(status), step);
  }
  return ok_status();
}

Status BoundForward::failed(Status status, const Step& step) const {
  const auto part = static_cast<std::size_t>(step.part);
  if (step.graph != nullptr) return std::move(status).with_context("replaying " + place(part));
  return programs_[part]
      .with_instruction(std::move(status), static_cast<std::size_t>(step.instruction))
      .with_context(place(part));
}

Status BoundForward::run(Stream& stream) {
  TRY(walk(steps_, stream));
  if (!captured()) ++num_warm_ups_;
  return ok_status();
}

bool BoundForward::has_cold_kernels(const KernelVariants& warm) const {
  return std::ranges::any_of(steps_, [&](const Step& step) { return !warm.contains(step.op->variant()); });
}

Status BoundForward::warm_up(KernelVariants& warm, Stream& stream) const {
  for (const Step& step : steps_) {
    if (warm.contains(step.op->variant())) continue;
    TRY(walk({&step, 1}, stream).with_context("warming up"));
    warm.insert(step.op->variant());
  }
  return ok_status();
}

void BoundForward::add_variants(KernelVariants& variants) const {
  for (const Step& step : steps_) variants.insert(step.op->variant());
}

Status BoundForward::replay(Stream& stream) { return captured() ? walk(*replay_steps_, stream) : run(stream); }

Status BoundForward::run_in_parts(bool graphs, Stream& stream, const PartPassed& passed) {
  const bool replays = graphs && captured();
  const std::span<const Step> steps = replays ? *replay_steps_ : steps_;
  for (std::size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
    const std::int32_t part = steps[begin].part;
    while (end < steps.size() && steps[end].part == part) ++end;
    TRY(walk(steps.subspan(begin, end - begin), stream));
    TRY(passed(static_cast<std::size_t>(part)));
  }
  if (!captured()) ++num_warm_ups_;
  return ok_status();
}

Status BoundForward::capture(const PiecewiseBackend& backend, Stream& stream) {
  if (captured()) return ok_status();
  // The graphs are kept only if all captures succeed. If the forward ran partly as graphs and partly eagerly, the
  // failure would stay unnoticed.
  std::vector<std::unique_ptr<RecordedGraph>> graphs(programs_.size());
  std::vector<Step> steps;
  for (std::size_t p = 0; p < programs_.size(); ++p) {
    if (!forward_.parts[p].recordable()) {
      add_kernels(p, steps);
      continue;
    }
    graphs[p] = TRY(backend.capture(programs_[p], stream, place(p)));
    steps.push_back({graphs[p].get(), nullptr, static_cast<std::int32_t>(p), -1});
  }
  graphs_ = std::move(graphs);
  replay_steps_ = std::move(steps);
  return ok_status();
}

Status BoundForward::capture_full(const PiecewiseBackend& backend, Stream& stream) {
  full_graph_ = TRY(
      backend.capture_all(programs_, stream, fmt::format("{} as one graph at {}", forward_.name, bucket_.to_string())));
  return ok_status();
}

Status BoundForward::replay_full(Stream& stream) const {
  Status launched = full_graph_->launch(stream);
  if (launched.ok()) return launched;
  return std::move(launched).with_context(
      fmt::format("replaying {} as one graph at {}", forward_.name, bucket_.to_string()));
}

Status BoundForward::replay_part(std::size_t part, Stream& stream) const {
  const std::vector<Step>& steps = captured() ? *replay_steps_ : steps_;
  const auto of_part = [part](const Step& step) { return step.part == static_cast<std::int32_t>(part); };
  const auto first = std::find_if(steps.begin(), steps.end(), of_part);
  return walk({first, std::find_if_not(first, steps.end(), of_part)}, stream);
}

GraphStats BoundForward::graph_stats() const {
  GraphStats total;
  const auto add = [&](const std::unique_ptr<RecordedGraph>& graph) {
    if (graph == nullptr) return;
    const GraphStats stats = graph->stats();
    total.nodes += stats.nodes;
    total.bytes += stats.bytes;
  };
  std::ranges::for_each(graphs_, add);
  add(full_graph_);
  return total;
}

std::int64_t BoundForward::num_graphs() const {
  return std::count_if(graphs_.begin(), graphs_.end(), [](const auto& graph) { return graph != nullptr; }) +
         (has_full_graph() ? 1 : 0);
}

}  // namespace tessera
