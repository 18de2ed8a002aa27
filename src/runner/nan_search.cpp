#include "tessera/runner/nan_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/runner/find_nan.h"

namespace tessera {
namespace {

// Real rows lie at the start only where no dimension but the first depends on the batch.
bool rows_lead(const ir::Type& type) {
  return !type.shape.empty() && std::all_of(type.shape.begin() + 1, type.shape.end(),
                                            [](const ir::Dim& dim) { return dim.constant().has_value(); });
}

// Results and mutated operands. States are left out: most of a cache belongs to nobody.
std::vector<ir::ValueId> written_by(const ir::Graph& graph, const ir::Node& node) {
  std::vector<ir::ValueId> written = node.results;
  for (std::size_t i = 0; i < node.operands.size(); ++i)
    if (node.mutates[i] && graph.value(node.operands[i]).kind != ir::ValueKind::kState)
      written.push_back(node.operands[i]);
  return written;
}

}  // namespace

Result<std::string> NanSearch::place_in(const ir::Type& type, const std::byte* data, const ir::Bucket& real) {
  if (!ir::is_floating_point(type.dtype) || !rows_lead(type)) return std::string();
  const TensorView view = TRY(make_view(type, real, nullptr));
  host_.resize(static_cast<std::size_t>(view.bytes()));
  TRY(stream_.download(host_.data(), data, host_.size()));
  TRY(stream_.synchronize());
  const std::int64_t cols = std::max<std::int64_t>(view.elements() / std::max<std::int64_t>(view.dim(0), 1), 1);
  const std::int64_t at = find_nan(host_, type.dtype, cols);
  if (at < 0) return std::string();
  return view.rank == 1 ? fmt::format(" element {}", at) : fmt::format(" row {} column {}", at / cols, at % cols);
}

Result<std::string> NanSearch::in_outputs(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows) {
  const StitchingGraph& graph = runner.executable().graph();
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Slot& slot = graph.slots[static_cast<std::size_t>(graph.outputs[i])];
    const OutputView view = TRY(runner.executable().output(runner.bucket(size), i));
    const std::string place = TRY(place_in(slot.type, view.data, runner.bucket(real_rows)));
    if (!place.empty()) return fmt::format("%{}{}", slot.name, place);
  }
  return std::string();
}

Result<std::string> NanSearch::origin(const GraphRunner& runner, std::int64_t size, std::int64_t real_rows) {
  const Forward forward{runner.executable(), runner.bucket(size), runner.bucket(real_rows)};
  TRY(runner.executable().poison(forward.bucket));
  std::string found = TRY(first_step(forward));
  if (!found.empty()) return found;
  TRY(runner.executable().poison(forward.bucket));
  found = TRY(first_graph(forward));
  if (!found.empty()) return found;
  return std::string("a second run of the same forward makes none");
}

// Until here nothing that a kernel wrote is NaN; so the first that is was made by its kernel, or came from outside.
Result<std::string> NanSearch::first_step(const Forward& forward) {
  for (std::size_t p = 0; p < forward.executable.parts().size(); ++p) {
    const PartBackend& part = forward.executable.parts()[p];
    const BoundProgram* program = part.bound(forward.bucket);
    if (program == nullptr) return internal_error(fmt::format("{} is not bound", part.name()));
    const ir::Graph& graph = part.program().graph();
    for (std::size_t step = 0; step < program->steps().size(); ++step) {
      TRY(program->enqueue_step(step, stream_));
      const ir::Node& node = graph.node(program->steps()[step].node);
      for (const ir::ValueId id : written_by(graph, node)) {
        const TensorView view = TRY(forward.executable.value(forward.bucket, p, id));
        const std::string place = TRY(place_in(graph.value(id).type, view.data, forward.real));
        if (!place.empty()) return blame(forward, p, node, fmt::format("%{}{}", graph.value(id).name, place));
      }
    }
  }
  return std::string();
}

Result<std::string> NanSearch::blame(const Forward& forward, std::size_t part, const ir::Node& node,
                                     const std::string& place) {
  const PartBackend& backend = forward.executable.parts()[part];
  const ir::Graph& graph = backend.program().graph();
  const std::string where = fmt::format("operator {} in {} makes the first, {}", node.op, backend.name(), place);
  std::string unknown;
  for (const ir::ValueId id : node.operands) {
    const ir::Value& value = graph.value(id);
    if (value.kind == ir::ValueKind::kResult) continue;
    const TensorView view = TRY(forward.executable.value(forward.bucket, part, id));
    // What an earlier executable left in the arena was looked at when that made it.
    if (view.data >= arena_.base() && view.data < arena_.base() + arena_.size()) continue;
    if (value.kind == ir::ValueKind::kState) {
      unknown += fmt::format(", and {} %{} was not searched", ir::value_kind_name(value.kind), value.name);
      continue;
    }
    const std::string in_operand = TRY(place_in(value.type, view.data, forward.real));
    if (!in_operand.empty())
      return fmt::format("{}: its operand, {} %{}, has one at{}", where, ir::value_kind_name(value.kind), value.name,
                         in_operand);
  }
  return fmt::format("{}: its operands have none{}", where, unknown);
}

Result<std::string> NanSearch::first_graph(const Forward& forward) {
  for (std::size_t p = 0; p < forward.executable.parts().size(); ++p) {
    const PartBackend& part = forward.executable.parts()[p];
    TRY(part.replay(forward.bucket, stream_));
    const ir::Graph& graph = part.program().graph();
    for (const ir::ValueId id : graph.outputs) {
      const TensorView view = TRY(forward.executable.value(forward.bucket, p, id));
      const std::string place = TRY(place_in(graph.value(id).type, view.data, forward.real));
      if (!place.empty())
        return fmt::format("the graph of {} makes the first, %{}{}: its operators, run one by one, make none",
                           part.name(), graph.value(id).name, place);
    }
  }
  return std::string();
}

}  // namespace tessera
