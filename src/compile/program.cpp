#include "tessera/compile/program.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

std::string describe(const ir::Graph& graph, const ir::Node& node) {
  if (!node.results.empty()) return fmt::format("operator {} (%{})", node.op, graph.value(node.results[0]).name);
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    if (node.mutates[i]) return fmt::format("operator {} (mut %{})", node.op, graph.value(node.operands[i]).name);
  }
  return fmt::format("operator {}", node.op);
}

struct Views {
  std::vector<TensorView> operands;
  std::vector<TensorView> results;
};

Result<Views> views_of(const ir::Graph& graph, const ir::Node& node, const ir::Bucket& bucket,
                       std::span<std::byte* const> addresses) {
  Views views;
  auto add = [&](std::vector<TensorView>& out, ir::ValueId id) -> Status {
    std::byte* address = addresses.empty() ? nullptr : addresses[id.index()];
    out.push_back(TRY(make_view(graph.value(id).type, bucket, address).with_context("%" + graph.value(id).name)));
    return ok_status();
  };
  for (const ir::ValueId id : node.operands) TRY(add(views.operands, id));
  for (const ir::ValueId id : node.results) TRY(add(views.results, id));
  return views;
}

}  // namespace

Result<TensorView> make_view(const ir::Type& type, const ir::Bucket& bucket, std::byte* data) {
  const std::vector<std::int64_t> dims = TRY(ir::evaluate(type.shape, bucket));
  if (dims.size() > kMaxRank)
    return unimplemented(fmt::format("type {} has more than {} dimensions", type.to_string(), kMaxRank));
  TensorView view{.data = data, .dtype = type.dtype, .rank = static_cast<std::int32_t>(dims.size()), .dims = {}};
  std::copy(dims.begin(), dims.end(), view.dims.begin());
  return view;
}

Status BoundProgram::enqueue(Stream& stream) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) TRY(enqueue_step(i, stream));
  return ok_status();
}

Status BoundProgram::enqueue_step(std::size_t i, Stream& stream) const {
  const Step& step = steps_[i];
  Status status = step.op->enqueue(stream);
  // A kernel that swallowed the error of a call that capture does not allow would not be found by it.
  if (status.ok() && stream.recording()) status = stream.recording_status();
  if (!status.ok()) [[unlikely]]
    return std::move(status).with_context(describe(*graph_, graph_->node(step.node)));
  return ok_status();
}

Result<std::size_t> Program::workspace_bytes(const ir::Bucket& bucket, Device& device,
                                             const ForwardContext& context) const {
  std::size_t most = 0;
  for (const Step& step : steps_) {
    if (step.kernel->workspace_bytes == nullptr) continue;
    const ir::Node& node = graph_->node(step.node);
    const Views views = TRY(views_of(*graph_, node, bucket, {}));
    const BindArgs args{
        .node = node, .operands = views.operands, .results = views.results, .device = device, .context = context};
    most = std::max(most, TRY(step.kernel->workspace_bytes(args).with_context(describe(*graph_, node))));
  }
  return most;
}

Result<BoundProgram> Program::bind(const BindTarget& target) const {
  std::vector<BoundProgram::Step> bound;
  bound.reserve(steps_.size());
  for (const Step& step : steps_) {
    const ir::Node& node = graph_->node(step.node);
    const Views views = TRY(views_of(*graph_, node, target.bucket, target.addresses));
    const BindArgs args{.node = node,
                        .operands = views.operands,
                        .results = views.results,
                        .workspace = target.workspace,
                        .device = target.device,
                        .context = target.context};
    bound.push_back({TRY(step.kernel->bind(args).with_context(describe(*graph_, node))), step.node});
  }
  return BoundProgram(*graph_, std::move(bound));
}

}  // namespace tessera
