#include "tessera/ops/moe/adapter_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_activation.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

// Checks four operands, from number `first` on: the adapter tables A, B, ranks and scales of gate_up or of down.
Status check_stack(const ir::OpSignature& s, std::size_t first, std::int64_t modules, std::int64_t rows_each,
                   std::int64_t columns) {
  const std::string name = first == 6 ? "gate_up" : "down";
  const ir::DType dtype = s.operands[0].dtype;
  TRY(expect_rank(s, first + 1, name + "_b", 3));
  const ir::Dim slots = s.operands[first + 1].shape[0];
  const std::int64_t rank = s.operands[first + 1].shape[1].constant().value_or(0);
  if (rank < 1)
    return refuse(s, fmt::format("{}_b is {}; its second size, the largest rank, must be at least 1", name,
                                 s.operands[first + 1].to_string()));
  TRY(expect_type(s, first, name + "_a", {dtype, {slots, modules * rank, columns}}));
  TRY(expect_type(s, first + 1, name + "_b", {dtype, {slots, rank, modules * rows_each}}));
  TRY(expect_type(s, first + 2, name + "_ranks", {ir::DType::kInt32, {slots, modules}}));
  return expect_type(s, first + 3, name + "_scales", {ir::DType::kFloat32, {slots, modules}});
}

Result<std::vector<ir::Type>> infer_experts(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "y"));
  TRY(expect_rank(s, 0, "y", 2));
  const ir::Type& y = s.operands[0];
  const std::int64_t hidden = TRY(constant_cols(s, 0, "y"));
  TRY(expect_type(s, 1, "x", y));
  TRY(expect_rank(s, 2, "ids", 2));
  const std::int64_t top_k = TRY(constant_cols(s, 2, "ids"));
  TRY(expect_type(s, 2, "ids", {ir::DType::kInt32, {y.shape[0], top_k}}));
  TRY(expect_type(s, 3, "weights", {ir::DType::kFloat32, {y.shape[0], top_k}}));
  TRY(expect_rank(s, 4, "gate_up", 3));
  TRY(expect_rank(s, 5, "down", 3));
  const std::int64_t experts = s.operands[5].shape[0].constant().value_or(0);
  const std::int64_t size = s.operands[5].shape[2].constant().value_or(0);
  if (experts < 1 || size < 1)
    return refuse(
        s, fmt::format("down is {}; its numbers of experts and of columns must be above 0", s.operands[5].to_string()));
  TRY(expect_type(s, 4, "gate_up", {y.dtype, {experts, 2 * size, hidden}}));
  TRY(expect_type(s, 5, "down", {y.dtype, {experts, hidden, size}}));
  TRY(check_stack(s, 6, 2 * experts, size, hidden));
  TRY(check_stack(s, 10, experts, hidden, size));
  if (!(s.operands[7].shape[0] == s.operands[11].shape[0]) || !(s.operands[7].shape[1] == s.operands[11].shape[1]))
    return refuse(s, "the tables of gate_up and down must have the same number of slots and the same largest rank");
  TRY(expect_type(s, 14, "slots", {ir::DType::kInt32, {kAdapterRowLists, y.shape[0]}}));
  const std::string activation = string_attribute(s.node, "activation", "silu");
  if (activation != "silu" && activation != "gelu_tanh")
    return refuse(s, fmt::format("activation = \"{}\"; it must be \"silu\" or \"gelu_tanh\"", activation));
  return std::vector<ir::Type>();
}

template <class T>
float dot(const T* x, const T* w, std::int64_t n) {
  std::array<float, 16> lanes{};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::int64_t j = 0; j < 16; ++j) lanes[static_cast<std::size_t>(j)] += to_float(x[i + j]) * to_float(w[i + j]);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += to_float(x[i]) * to_float(w[i]);
  return sum;
}

// Recomputes a row of y if the row's adapter changes at least one of the row's experts.
template <class T>
class RowsAgain {
 public:
  explicit RowsAgain(const AdapterExpertsArgs& in)
      : in_(in),
        product_(static_cast<std::size_t>(std::max(2 * in.intermediate, in.hidden))),
        activated_(static_cast<std::size_t>(in.intermediate)),
        sums_(static_cast<std::size_t>(in.hidden)) {}

  void compute(std::int64_t row) {
    slot_ = in_.slots[row];
    if (slot_ < 0 || slot_ >= in_.num_slots || !changes(row)) return;
    std::ranges::fill(sums_, 0.0F);
    for (std::int64_t k = 0; k < in_.top_k; ++k) {
      const std::int32_t expert = in_.ids[row * in_.top_k + k];
      if (expert < 0 || expert >= in_.experts) continue;
      const float weight = in_.weights[row * in_.top_k + k];
      add_expert(static_cast<const T*>(in_.x) + row * in_.hidden, expert);
      for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += weight * to_float(product_[i]);
    }
    T* const y = static_cast<T*>(in_.y) + row * in_.hidden;
    for (std::size_t i = 0; i < sums_.size(); ++i) y[i] = from_float<T>(sums_[i]);
  }

 private:
  std::int32_t rank_of(const AdapterStack& stack, std::int64_t module) const {
    return stack.ranks[slot_ * stack.modules + module];
  }
  bool changes(std::int64_t row) const {
    for (std::int64_t k = 0; k < in_.top_k; ++k) {
      const std::int32_t e = in_.ids[row * in_.top_k + k];
      if (e < 0 || e >= in_.experts) continue;
      if (rank_of(in_.gate_up_change, 2 * e) > 0 || rank_of(in_.gate_up_change, 2 * e + 1) > 0 ||
          rank_of(in_.down_change, e) > 0)
        return true;
    }
    return false;
  }

  // Computes one expert's result down' · a(gate_up' · x) into product_. a is the activation. A prime (') marks a matrix
  // to which the adapter's change is added.
  void add_expert(const T* x, std::int64_t expert) {
    const std::int64_t size = in_.intermediate;
    for (const std::int64_t half : {0, 1})
      multiply(x, static_cast<const T*>(in_.gate_up) + (2 * expert + half) * size * in_.hidden, size,
               in_.gate_up_change, 2 * expert + half, product_.data() + half * size);
    for (std::int64_t i = 0; i < size; ++i) {
      const float gate = to_float(product_[static_cast<std::size_t>(i)]);
      const float a = to_float(from_float<T>(in_.gelu ? GeluTanh{}(gate) : Silu{}(gate)));
      activated_[static_cast<std::size_t>(i)] =
          from_float<T>(a * to_float(product_[static_cast<std::size_t>(size + i)]));
    }
    multiply(activated_.data(), static_cast<const T*>(in_.down) + expert * in_.hidden * size, in_.hidden,
             in_.down_change, expert, product_.data());
  }

  // Computes y = (w + scale · Bᵀ · A) · x. w is the matrix of one module, and has `rows` rows. A, B and scale are the
  // adapter's.
  void multiply(const T* x, const T* w, std::int64_t rows, const AdapterStack& stack, std::int64_t module, T* y) const {
    const std::int64_t n = stack.columns;
    const std::int32_t rank = rank_of(stack, module);
    std::vector<float> t(static_cast<std::size_t>(rank));
    const T* const a = static_cast<const T*>(stack.a) + (slot_ * stack.modules + module) * in_.rank * n;
    for (std::int32_t r = 0; r < rank; ++r) t[static_cast<std::size_t>(r)] = dot(x, a + r * n, n);
    const T* const b = static_cast<const T*>(stack.b) + std::int64_t{slot_} * in_.rank * stack.width + module * rows;
    const float scale = stack.scales[slot_ * stack.modules + module];
    for (std::int64_t row = 0; row < rows; ++row) {
      float change = 0;
      for (std::int32_t r = 0; r < rank; ++r)
        change += t[static_cast<std::size_t>(r)] * to_float(b[r * stack.width + row]);
      y[row] = from_float<T>(dot(x, w + row * n, n) + scale * change);
    }
  }

  const AdapterExpertsArgs& in_;
  std::int64_t slot_ = 0;
  std::vector<T> product_;
  std::vector<T> activated_;
  std::vector<float> sums_;
};

Result<std::unique_ptr<BoundOp>> bind_experts(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "adapter_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const AdapterExpertsArgs in = adapter_experts_args(args);
    return make_cpu_op("adapter_experts", [in] {
      const std::int64_t bytes = 3 * in.top_k * in.hidden * in.intermediate * static_cast<std::int64_t>(sizeof(T));
      parallel_rows(in.rows, bytes, [&](std::int64_t begin, std::int64_t end) {
        RowsAgain<T> again(in);
        for (std::int64_t row = begin; row < end; ++row) again.compute(row);
      });
    });
  });
}

AdapterStack stack_of(const BindArgs& args, std::size_t first) {
  return {.a = args.operands[first].data.raw(),
          .b = args.operands[first + 1].data.raw(),
          .ranks = args.operands[first + 2].as<std::int32_t>(),
          .scales = args.operands[first + 3].as<float>(),
          .modules = args.operands[first + 2].cols(),
          .columns = args.operands[first].dim(2),
          .width = args.operands[first + 1].dim(2)};
}

}  // namespace

Status check_sizes(const AdapterExpertsArgs& in, const AdapterExpertsLimits& most) {
  if (in.hidden <= most.hidden && in.intermediate <= most.intermediate && in.rank <= most.rank) return ok_status();
  return unimplemented(fmt::format(
      "adapter_experts: hidden size {}, intermediate size {} and rank {}; at most {}, {} and {} are accepted",
      in.hidden, in.intermediate, in.rank, most.hidden, most.intermediate, most.rank));
}

AdapterExpertsArgs adapter_experts_args(const BindArgs& args) {
  return {.y = args.operands[0].data.raw(),
          .x = args.operands[1].data.raw(),
          .ids = args.operands[2].as<std::int32_t>(),
          .weights = args.operands[3].as<float>(),
          .gate_up = args.operands[4].data.raw(),
          .down = args.operands[5].data.raw(),
          .gate_up_change = stack_of(args, 6),
          .down_change = stack_of(args, 10),
          .slots = args.operands[14].as<std::int32_t>(),
          .rows = args.operands[0].dim(0),
          .top_k = args.operands[2].dim(1),
          .experts = args.operands[5].dim(0),
          .hidden = args.operands[0].dim(1),
          .intermediate = args.operands[5].dim(2),
          .num_slots = static_cast<std::int32_t>(args.operands[7].dim(0)),
          .rank = static_cast<std::int32_t>(args.operands[7].dim(1)),
          .gelu = string_attribute(args.node, "activation", "silu") == "gelu_tanh"};
}

const ir::OpDecl kAdapterExperts{
    .name = "adapter_experts",
    .summary =
        "y = sum over k of weights[t, k] * down'[e] a(gate_up'[e] x[t]) for rows whose slot changes experts: mut "
        "[T, H], [T, H] -> ()",
    .operands = {{"y", true},
                 {"x"},
                 {"ids"},
                 {"weights"},
                 {"gate_up"},
                 {"down"},
                 {"gate_up_a"},
                 {"gate_up_b"},
                 {"gate_up_ranks"},
                 {"gate_up_scales"},
                 {"down_a"},
                 {"down_b"},
                 {"down_ranks"},
                 {"down_scales"},
                 {"slots"}},
    .attributes = {{"activation", ir::AttributeKind::kString}},
    .infer = infer_experts,
};

const KernelDef kAdapterExpertsCpu{.op = "adapter_experts", .name = "cpu", .bind = bind_experts};

}  // namespace tessera
