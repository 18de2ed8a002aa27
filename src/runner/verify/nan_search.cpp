#include "tessera/runner/verify/nan_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/model/model.h"
#include "tessera/runner/verify/find_nan.h"

namespace tessera {
namespace {

// Returns whether only the first dimension of a value depends on the batch. If so, the real rows are contiguous at the
// value's start.
bool rows_lead(const ir::Type& type) {
  return !type.shape.empty() && std::all_of(type.shape.begin() + 1, type.shape.end(),
                                            [](const ir::Dim& dim) { return dim.constant().has_value(); });
}

// Returns the results and mutated operands of a call. States are left out, because most pages of a cache belong to no
// request.
std::vector<ir::ValueId> written_by(const Program& program, const ir::Node& call) {
  std::vector<ir::ValueId> written = call.results;
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    if (call.mutates[i] && program.value(call.operands[i]).kind != ir::ValueKind::kState)
      written.push_back(call.operands[i]);
  return written;
}

}  // namespace

Result<std::string> NanSearch::place_in(const ir::Type& type, DeviceAddress data, const ir::Bucket& real) {
  if (!ir::is_floating_point(type.dtype) || !rows_lead(type)) return std::string();
  const TensorView view = TRY(make_view(type, real, {}));
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

// Runs the operators one by one until a result has a NaN. The operators before it wrote no NaN. So this operator made
// the NaN, or read it from an external operand.
Result<std::string> NanSearch::first_step(const Forward& forward) {
  for (std::size_t p = 0; p < forward.executable.parts(forward.bucket).size(); ++p) {
    const CompiledPart& part = forward.executable.parts(forward.bucket)[p];
    for (std::size_t i = 0; i < part.program->instructions.size(); ++i) {
      if (TRY(forward.executable.runs_later(forward.bucket, p, i))) continue;
      TRY(forward.executable.run_instruction(forward.bucket, p, i));
      const ir::Node& call = part.program->instructions[i].call;
      for (const ir::ValueId id : written_by(*part.program, call)) {
        const TensorView view = TRY(forward.executable.value(forward.bucket, p, id));
        const std::string place = TRY(place_in(part.program->value(id).type, view.data, forward.real));
        if (!place.empty()) return blame(forward, p, call, fmt::format("%{}{}", part.value_names[id.index()], place));
      }
    }
  }
  return std::string();
}

Result<std::string> NanSearch::blame(const Forward& forward, std::size_t part, const ir::Node& call,
                                     const std::string& place) {
  const CompiledPart& of = forward.executable.parts(forward.bucket)[part];
  const std::string where = fmt::format("operator {} in {} makes the first, {}", call.op, of.name, place);
  std::string unknown;
  for (const ir::ValueId id : call.operands) {
    const ProgramValue& value = of.program->value(id);
    const std::string& name = of.value_names[id.index()];
    if (value.kind == ir::ValueKind::kResult) continue;
    const TensorView view = TRY(forward.executable.value(forward.bucket, part, id));
    // An earlier executable of the same forward left this value in the arena. Debug mode has already searched the
    // outputs of that executable for NaNs, so the value is not searched again.
    if (view.data.handle == arena_.base().handle) continue;
    // States and embeddings from prompts are not searched, because most of their rows belong to no request, and some
    // embedding rows have no memory.
    if (value.kind == ir::ValueKind::kState || name == input_names::kEmbeddings) {
      unknown += fmt::format(", and {} %{} was not searched", ir::value_kind_name(value.kind), name);
      continue;
    }
    const std::string in_operand = TRY(place_in(value.type, view.data, forward.real));
    if (!in_operand.empty())
      return fmt::format("{}: its operand, {} %{}, has one at{}", where, ir::value_kind_name(value.kind), name,
                         in_operand);
  }
  return fmt::format("{}: its operands have none{}", where, unknown);
}

Result<std::string> NanSearch::first_graph(const Forward& forward) {
  for (std::size_t p = 0; p < forward.executable.parts(forward.bucket).size(); ++p) {
    const CompiledPart& part = forward.executable.parts(forward.bucket)[p];
    TRY(forward.executable.replay_part(forward.bucket, p));
    for (const ir::ValueId id : part.outputs) {
      const TensorView view = TRY(forward.executable.value(forward.bucket, p, id));
      const std::string place = TRY(place_in(part.program->value(id).type, view.data, forward.real));
      if (!place.empty())
        return fmt::format("the graph of {} makes the first, %{}{}: its operators, run one by one, make none",
                           part.name, part.value_names[id.index()], place);
    }
  }
  return std::string();
}

}  // namespace tessera
