#include "tessera/runner/observe/expert_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/quantised_matrix.h"
#include "tessera/runner/graphs/make_executable.h"
#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

using namespace experts_operands;  // NOLINT(google-build-using-namespace): only for this file

bool is_quantised(const ir::Node& node) { return node.attribute_or("quantised", false); }

// Returns one expert's part of a tensor that stacks the matrices or vectors of all experts. If `counts_rows` is true,
// the first dimension of the tensor counts the rows of all experts. Otherwise it counts the experts.
TensorView part_of(TensorView stack, std::int64_t experts, std::int64_t expert, bool counts_rows) {
  stack.data += stack.bytes() / experts * expert;
  if (counts_rows) {
    stack.dims[0] /= experts;
  } else {
    for (int i = 1; i < stack.rank; ++i) stack.dims[static_cast<std::size_t>(i - 1)] = stack.dim(i);
    --stack.rank;
  }
  return stack;
}

// A linear operator that multiplies by the gate and up matrices of one expert. `matrix` holds all operands of the
// operator except the first, x.
struct GateUpLinear {
  ir::Node node;
  std::vector<TensorView> matrix;
};

Result<GateUpLinear> gate_up_of(const ObservedCall& call, std::int64_t expert, const ExpertSizes& sizes) {
  const ir::Node& node = call.node();
  const bool bias = node.attribute_or("gate_up_bias", false);
  const bool quantised = is_quantised(node);
  GateUpLinear linear{.node = {.op = quantised ? "quantised_linear" : "linear", .attributes = {{"bias", bias}}},
                      .matrix = {}};
  const auto add = [&](std::size_t operand, bool counts_rows) -> Status {
    linear.matrix.push_back(part_of(TRY(call.operand(operand)), sizes.experts, expert, counts_rows));
    return ok_status();
  };
  TRY(add(kGateUp, quantised));
  if (quantised) {
    const QuantisedFormat format = TRY(QuantisedFormat::of(node));
    // The kernel reads groups of sixteen rows, whose blocks are stored together (blocks/packed_layout.h). The number of
    // one expert's rows must therefore be a multiple of sixteen.
    if (format.is_blocks() && 2 * sizes.intermediate % 16 != 0)
      return unimplemented(
          fmt::format("experts whose gate and up have {} rows in blocks of a GGUF file; accepted: a "
                      "multiple of 16",
                      2 * sizes.intermediate));
    for (auto& attribute : format.attributes()) linear.node.attributes.push_back(std::move(attribute));
    linear.node.attributes.emplace_back("inputs", string_attribute(node, "inputs", "plain"));
    const std::size_t first = kDown + 1 + std::size_t{bias} + std::size_t{node.attribute_or("down_bias", false)};
    for (std::size_t i = 0; i + 1 < format.num_operands(); ++i) TRY(add(first + i, true));
  }
  if (bias) TRY(add(kDown + 1, false));
  std::ranges::sort(linear.node.attributes, {}, [](const auto& attribute) { return attribute.first; });
  return linear;
}

// Computes the activation a(g, u) that moe_experts.h defines. Each row of `both` has `columns` numbers of g (gate), and
// then `columns` numbers of u (up).
void activate(const ir::Node& node, std::span<const float> both, std::int64_t columns, std::span<float> to) {
  const std::string activation = string_attribute(node, "activation", "silu");
  const auto limit = static_cast<float>(node.attribute_or("limit", 0.0));
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto n = static_cast<std::size_t>(columns);
    const float gate = both[i / n * 2 * n + i % n];
    const float up = both[i / n * 2 * n + n + i % n];
    if (activation == "gelu_tanh") {
      constexpr float kRootOfTwoOverPi = 0.7978845608F;
      to[i] = 0.5F * gate * (1 + std::tanh(kRootOfTwoOverPi * (gate + 0.044715F * gate * gate * gate))) * up;
    } else if (activation == "clamped_swiglu") {
      const float cut = std::min(gate, limit);
      to[i] = cut / (1 + std::exp(-kSwigluAlpha * cut)) * (std::clamp(up, -limit, limit) + 1);
    } else {
      to[i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
}

}  // namespace

Result<ExpertRows> ExpertRows::of(const ObservedRows& ids, std::int64_t experts) {
  if (ids.dtype != ir::DType::kInt32) return internal_error("the ids of experts are not i32");
  ExpertRows chosen{.rows_of = std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(experts))};
  for (std::int64_t i = 0; i < ids.rows * ids.cols; ++i) {
    std::int32_t id = 0;
    std::memcpy(&id, ids.bytes.data() + i * std::int64_t{sizeof(id)}, sizeof(id));
    if (id >= 0 && id < experts) chosen.rows_of[static_cast<std::size_t>(id)].push_back(i / ids.cols);
  }
  return chosen;
}

void gather_rows(const ObservedRows& from, std::span<const std::int64_t> rows, std::vector<std::byte>& to) {
  const std::size_t bytes = static_cast<std::size_t>(from.cols) * ir::dtype_size(from.dtype);
  to.resize(rows.size() * bytes);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(to.data() + i * bytes, from.bytes.data() + static_cast<std::size_t>(rows[i]) * bytes, bytes);
}

Result<ExpertSizes> ExpertInputs::sizes(const ObservedCall& call) {
  const TensorView gate_up = TRY(call.operand(kGateUp));
  if (!is_quantised(call.node())) return ExpertSizes{.experts = gate_up.dim(0), .intermediate = gate_up.dim(1) / 2};
  const std::int64_t experts = TRY(call.operand(kDown)).dim(0) / TRY(call.operand(kX)).cols();
  return ExpertSizes{.experts = experts, .intermediate = gate_up.dim(0) / experts / 2};
}

Result<TensorView> ExpertInputs::buffer(std::unique_ptr<Allocation>& memory, ir::DType dtype, std::int64_t rows,
                                        std::int64_t cols) {
  const TensorView view{.dtype = dtype, .rank = 2, .dims = {rows, cols}};
  const auto bytes = static_cast<std::size_t>(view.bytes());
  if (memory == nullptr || memory->size() < bytes)
    memory = TRY(parts_.model.device.allocate(bytes, "inputs of experts"));
  TensorView placed = view;
  placed.data = memory->data();
  return placed;
}

Status ExpertInputs::multiply(const ObservedCall& call, std::int64_t expert, const ObservedRows& x) {
  const ExpertSizes sizes = TRY(ExpertInputs::sizes(call));
  const GateUpLinear linear = TRY(gate_up_of(call, expert, sizes));
  std::vector<TensorView> operands{TRY(buffer(x_, x.dtype, x.rows, x.cols))};
  operands.insert(operands.end(), linear.matrix.begin(), linear.matrix.end());
  const TensorView y = TRY(buffer(y_, x.dtype, x.rows, 2 * sizes.intermediate));
  Device& device = parts_.model.device;
  const ExecutionEnvironment environment = parts_.environment(BatchKind::kExtend);
  const KernelTable* kernels = TRY(kernels_of(parts_.model.options, device));
  const KernelDef& kernel = *TRY(kernels->get(linear.node.op));
  const auto args = [&](DeviceAddress workspace) {
    return BindArgs{.node = linear.node,
                    .operands = operands,
                    .results = std::span(&y, 1),
                    .workspace = workspace,
                    .device = device,
                    .context = environment.context};
  };
  DeviceAddress workspace;
  if (kernel.workspace_bytes) {
    const auto bytes = static_cast<std::int64_t>(TRY(kernel.workspace_bytes(args({}))));
    workspace = TRY(buffer(workspace_, ir::DType::kUInt8, 1, std::max<std::int64_t>(bytes, 1))).data;
  }
  const std::unique_ptr<BoundOp> op = TRY(kernel.bind(args(workspace)));
  Stream& stream = parts_.stream();
  TRY(stream.upload(operands[0].data, x.bytes.data(), x.bytes.size()));
  TRY(op->enqueue(stream));
  host_.resize(static_cast<std::size_t>(y.bytes()));
  TRY(stream.download(host_.data(), y.data, host_.size()));
  TRY(stream.synchronize());
  both_.resize(static_cast<std::size_t>(y.elements()));
  return widen_floats(host_.data(), y.dtype, both_);
}

Result<std::span<const float>> ExpertInputs::down_inputs(const ObservedCall& call, std::int64_t expert,
                                                         const ObservedRows& x) {
  TRY(multiply(call, expert, x).with_context(fmt::format("expert {} of {}", expert, call.operand_name(kGateUp))));
  const std::int64_t columns = TRY(sizes(call)).intermediate;
  activated_.resize(static_cast<std::size_t>(x.rows * columns));
  activate(call.node(), both_, columns, activated_);
  return std::span<const float>(activated_);
}

}  // namespace tessera
