#include "tessera/model/layers/moe.h"

#include <fmt/format.h>

#include <vector>

#include "tessera/model/layers/mlp.h"
#include "tessera/ops/moe_experts.h"

namespace tessera {
namespace {

using Packed = PackedStorage::Content;

// The slices of a layer's experts that a rank holds, as parts of one value for all of them.
class ExpertParts {
 public:
  ExpertParts(const ModelConfig& config, const ModelOptions& options, const ExpertTensors& tensors)
      : tensors_(tensors),
        hidden_(config.hidden_size),
        size_(config.moe->intermediate_size),
        experts_(config.moe->num_experts),
        local_(size_ / options.tp_size),
        first_(local_ * options.tp_rank) {}

  std::int64_t local_size() const { return local_; }

  std::vector<WeightPart> gate_up() const {
    if (tensors_.layout == ExpertLayout::kStacked && local_ == size_)
      return {{.tensor = tensors_.prefix + "gate_up_proj", .shape = {experts_, 2 * size_, hidden_}}};
    std::vector<WeightPart> parts;
    for (std::int64_t e = 0; e < experts_; ++e)
      for (const bool up : {false, true}) parts.push_back(gate_or_up(e, up));
    return parts;
  }

  std::vector<WeightPart> down() const {
    if (tensors_.layout == ExpertLayout::kStacked && local_ == size_)
      return {{.tensor = tensors_.prefix + "down_proj", .shape = {experts_, hidden_, size_}}};
    std::vector<WeightPart> parts;
    for (std::int64_t e = 0; e < experts_; ++e) parts.push_back(down(e));
    return parts;
  }

  // Bytes of MXFP4, or those of its factors, as published: gate and up in turn by rows, "<prefix>gate_up_proj_blocks"
  // [E, 2I, H/32, 16] and "…_scales" [E, 2I, H/32] …
  std::vector<WeightPart> packed_gate_up(Packed content) const {
    const std::int64_t columns = hidden_ / values_of(content);
    std::vector<WeightPart> parts;
    for (std::int64_t e = 0; e < experts_; ++e)
      for (const bool up : {false, true})
        parts.push_back({.tensor = packed_name("gate_up_proj", content),
                         .shape = {size_, columns},
                         .slice = {.dim = 0, .begin = first_, .size = local_},
                         .storage = PackedStorage{.tensor_shape = packed_shape(2 * size_, hidden_, content),
                                                  .offset = (e * 2 * size_ + (up ? 1 : 0)) * columns,
                                                  .row_stride = 2 * columns,
                                                  .content = content}});
    return parts;
  }
  // … and "<prefix>down_proj_blocks" [E, H, I/32, 16], "…_scales" [E, H, I/32].
  std::vector<WeightPart> packed_down(Packed content) const {
    const std::int64_t columns = size_ / values_of(content);
    const TensorSlice slice{.dim = 1, .begin = first_ / values_of(content), .size = local_ / values_of(content)};
    std::vector<WeightPart> parts;
    for (std::int64_t e = 0; e < experts_; ++e)
      parts.push_back({.tensor = packed_name("down_proj", content),
                       .shape = {hidden_, columns},
                       .slice = slice,
                       .storage = PackedStorage{.tensor_shape = packed_shape(hidden_, size_, content),
                                                .offset = e * hidden_ * columns,
                                                .row_stride = columns,
                                                .content = content}});
    return parts;
  }
  // Of an expert's values, those that one byte is for.
  static std::int64_t values_of(Packed content) { return content == Packed::kFourBits ? 2 : kMxfp4Block; }

  // Biases exist in stacks alone.
  std::vector<WeightPart> gate_up_bias() const {
    const bool in_turn = tensors_.layout == ExpertLayout::kInterleaved;
    std::vector<WeightPart> parts;
    for (std::int64_t e = 0; e < experts_; ++e)
      for (const bool up : {false, true})
        parts.push_back({.tensor = tensors_.prefix + "gate_up_proj_bias",
                         .shape = {size_},
                         .slice = {.dim = 0, .begin = first_, .size = local_},
                         .storage = StridedStorage{.tensor_shape = {experts_, 2 * size_},
                                                   .offset = e * 2 * size_ + (!up       ? 0
                                                                              : in_turn ? 1
                                                                                        : size_),
                                                   .col_stride = in_turn ? 2 : 1}});
    return parts;
  }
  std::vector<WeightPart> down_bias() const {
    return {{.tensor = tensors_.prefix + "down_proj_bias", .shape = {experts_, hidden_}}};
  }

 private:
  std::string separate(std::int64_t expert, const std::string& name) const {
    return fmt::format("{}{}.{}.weight", tensors_.prefix, expert, name);
  }

  std::string packed_name(const char* name, Packed content) const {
    return tensors_.prefix + name + (content == Packed::kFourBits ? "_blocks" : "_scales");
  }
  std::vector<std::int64_t> packed_shape(std::int64_t rows, std::int64_t columns, Packed content) const {
    std::vector<std::int64_t> shape{experts_, rows, columns / kMxfp4Block};
    if (content == Packed::kFourBits) shape.push_back(kMxfp4Block / 2);
    return shape;
  }

  // Rows first_ … of gate or up [I, H].
  WeightPart gate_or_up(std::int64_t expert, bool up) const {
    WeightPart part{.tensor = tensors_.prefix + "gate_up_proj",
                    .shape = {size_, hidden_},
                    .slice = {.dim = 0, .begin = first_, .size = local_}};
    const std::int64_t begin = expert * 2 * size_ * hidden_;
    switch (tensors_.layout) {
      case ExpertLayout::kSeparate: part.tensor = separate(expert, up ? tensors_.up : tensors_.gate); break;
      case ExpertLayout::kStacked:
        part.storage = StridedStorage{.tensor_shape = {experts_, 2 * size_, hidden_},
                                      .offset = begin + (up ? size_ * hidden_ : 0),
                                      .row_stride = hidden_,
                                      .col_stride = 1};
        break;
      case ExpertLayout::kTransposed:
        part.storage = StridedStorage{.tensor_shape = {experts_, hidden_, 2 * size_},
                                      .offset = begin + (up ? size_ : 0),
                                      .row_stride = 1,
                                      .col_stride = 2 * size_};
        break;
      case ExpertLayout::kInterleaved:
        part.storage = StridedStorage{.tensor_shape = {experts_, hidden_, 2 * size_},
                                      .offset = begin + (up ? 1 : 0),
                                      .row_stride = 2,
                                      .col_stride = 2 * size_};
        break;
    }
    return part;
  }

  // Columns first_ … of down [H, I].
  WeightPart down(std::int64_t expert) const {
    WeightPart part{.tensor = tensors_.prefix + "down_proj",
                    .shape = {hidden_, size_},
                    .slice = {.dim = 1, .begin = first_, .size = local_}};
    const std::int64_t begin = expert * size_ * hidden_;
    switch (tensors_.layout) {
      case ExpertLayout::kSeparate: part.tensor = separate(expert, tensors_.down); break;
      case ExpertLayout::kStacked:
        part.storage = StridedStorage{
            .tensor_shape = {experts_, hidden_, size_}, .offset = begin, .row_stride = size_, .col_stride = 1};
        break;
      case ExpertLayout::kTransposed:
      case ExpertLayout::kInterleaved:
        part.storage = StridedStorage{
            .tensor_shape = {experts_, size_, hidden_}, .offset = begin, .row_stride = 1, .col_stride = hidden_};
        break;
    }
    return part;
  }

  const ExpertTensors& tensors_;
  std::int64_t hidden_;
  std::int64_t size_;
  std::int64_t experts_;
  std::int64_t local_;
  std::int64_t first_;
};

ir::ValueId add_weight(LayerBuilder& b, const std::string& name, ir::DType dtype,
                       const std::vector<std::int64_t>& shape, std::vector<WeightPart> parts) {
  WeightSpec spec{.name = name, .parts = std::move(parts)};
  spec.type.dtype = dtype;
  for (const std::int64_t size : shape) spec.type.shape.emplace_back(size);
  return b.add_weight(std::move(spec));
}

// A tensor of the checkpoint in float32, whatever the model computes in.
ir::ValueId float32_weight(LayerBuilder& b, const std::string& tensor, const std::vector<std::int64_t>& shape) {
  return add_weight(b, tensor, ir::DType::kFloat32, shape, {{.tensor = tensor, .shape = shape}});
}

ir::ValueId float32_router(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const std::string& name) {
  const ir::ValueId weight = float32_weight(b, name + ".weight", {config.moe->num_experts, config.hidden_size});
  const bool wide = b.options().dtype == ir::DType::kFloat32;
  return b.graph.op("linear", {wide ? x : b.graph.op("cast", {x}, {{"dtype", std::string("f32")}}), weight},
                    {{"bias", false}});
}

std::string activation_name(const ModelConfig& config) {
  if (config.moe->swiglu_limit > 0) return "clamped_swiglu";
  return config.hidden_act == Activation::kGeluTanh ? "gelu_tanh" : "silu";
}

// A rank's gate_up and down, and where they are packed the factors of both.
struct ExpertStacks {
  ir::ValueId gate_up = {};
  ir::ValueId down = {};
  std::vector<ir::ValueId> scales = {};
};

ExpertStacks add_stacks(LayerBuilder& b, const ModelConfig& config, const ExpertParts& parts,
                        const std::string& prefix) {
  const std::int64_t experts = config.moe->num_experts;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t size = parts.local_size();
  if (!config.moe->mxfp4) {
    const ir::DType dtype = b.options().weight_type();
    return {
        .gate_up = add_weight(b, prefix + "gate_up_proj.weight", dtype, {experts, 2 * size, hidden}, parts.gate_up()),
        .down = add_weight(b, prefix + "down_proj.weight", dtype, {experts, hidden, size}, parts.down())};
  }
  const auto gate_up = [&](const char* name, Packed content) {
    return add_weight(b, prefix + "gate_up_proj" + name, ir::DType::kUInt8,
                      {experts, 2 * size, hidden / ExpertParts::values_of(content)}, parts.packed_gate_up(content));
  };
  const auto down = [&](const char* name, Packed content) {
    return add_weight(b, prefix + "down_proj" + name, ir::DType::kUInt8,
                      {experts, hidden, size / ExpertParts::values_of(content)}, parts.packed_down(content));
  };
  return {.gate_up = gate_up(".blocks", Packed::kFourBits),
          .down = down(".blocks", Packed::kFourBits),
          .scales = {gate_up(".scales", Packed::kExponents), down(".scales", Packed::kExponents)}};
}

// How the ranks may cut the experts.
Status check_ranks(const MoeConfig& moe, int ranks) {
  if (moe.intermediate_size % ranks != 0)
    return invalid_argument(fmt::format("the experts' intermediate size is {}, which does not divide among {} ranks",
                                        moe.intermediate_size, ranks));
  if (moe.mxfp4 && moe.intermediate_size / ranks % kMxfp4Block != 0)
    return invalid_argument(
        fmt::format("the experts' intermediate size is {}, of which each of {} ranks has {}; experts in MXFP4 are cut "
                    "into multiples of {}",
                    moe.intermediate_size, ranks, moe.intermediate_size / ranks, kMxfp4Block));
  return ok_status();
}

// y + the shared MLP, of which this rank has a part as it has of y.
ir::ValueId add_shared(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId y,
                       const MoeTensors& tensors) {
  ModelConfig shared = config;
  shared.intermediate_size = config.moe->shared_intermediate_size;
  const std::vector<LinearBlock> blocks = gate_up_blocks(shared, tensors.shared);
  if (!config.moe->shared_gate) return gated_mlp(b, shared, x, blocks, tensors.shared, Parallel::kRowPart, y);
  const ir::ValueId mlp = gated_mlp(b, shared, x, blocks, tensors.shared, Parallel::kRowPart);
  const ir::ValueId gate =
      b.linear(tensors.shared_gate, x, {{.tensor = tensors.shared_gate, .rows = 1}}, false, Parallel::kNone);
  return b.graph.op("add_gated", {y, mlp, gate});
}

}  // namespace

MoeTensors separate_experts(const std::string& prefix) {
  return {.router = {.weight = prefix + "gate", .correction = prefix + "gate.e_score_correction_bias"},
          .experts = {.prefix = prefix + "experts."},
          .shared = prefix + "shared_experts.",
          .shared_gate = prefix + "shared_expert_gate"};
}

Routing route_tokens(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                     const RouterTensors& tensors) {
  const MoeConfig& moe = *config.moe;
  const bool sigmoid = moe.scoring == RouterScoring::kSigmoid;
  const ir::ValueId logits = sigmoid
                                 ? float32_router(b, config, x, tensors.weight)
                                 : b.linear(tensors.weight, x, {{.tensor = tensors.weight, .rows = moe.num_experts}},
                                            moe.router_bias, Parallel::kNone);
  std::vector<ir::ValueId> operands{logits, slots};
  if (moe.correction_bias) operands.push_back(float32_weight(b, tensors.correction, {moe.num_experts}));
  if (!tensors.expert_scale.empty()) operands.push_back(float32_weight(b, tensors.expert_scale, {moe.num_experts}));
  // DeepSeek-V3 brought the correction and the sum of two together, and who has one has the other.
  const std::vector<ir::ValueId> routed =
      b.graph.multi_op("moe_route", operands,
                       {{"top_k", moe.experts_per_token},
                        {"scoring", std::string(sigmoid ? "sigmoid" : "softmax")},
                        {"normalise", moe.normalise},
                        {"groups", moe.groups},
                        {"groups_per_token", moe.groups_per_token},
                        {"group_score", std::string(moe.correction_bias ? "best_two" : "best")},
                        {"scale", moe.scale},
                        {"correction", moe.correction_bias},
                        {"expert_scale", !tensors.expert_scale.empty()}});
  return {.ids = routed[0], .weights = routed[1]};
}

ir::ValueId add_experts(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const Routing& routing,
                        const ExpertTensors& tensors) {
  const MoeConfig& moe = *config.moe;
  if (const Status status = check_ranks(moe, b.options().tp_size); !status.ok()) {
    b.graph.fail(status);
    return x;
  }
  if (config.hidden_act == Activation::kGelu)
    b.graph.fail(unimplemented("experts with hidden_act \"gelu\"; accepted: silu, gelu_pytorch_tanh"));
  const ExpertParts parts(config, b.options(), tensors);
  const ExpertStacks stacks = add_stacks(b, config, parts, tensors.prefix);
  const ir::DType dtype = b.options().weight_type();
  // Of partial sums only one may carry the bias.
  const bool down_bias = moe.expert_bias && b.options().tp_rank == 0;
  std::vector<ir::ValueId> operands{x, routing.ids, routing.weights, stacks.gate_up, stacks.down};
  if (moe.expert_bias)
    operands.push_back(add_weight(b, tensors.prefix + "gate_up_proj.bias", dtype,
                                  {moe.num_experts, 2 * parts.local_size()}, parts.gate_up_bias()));
  if (down_bias)
    operands.push_back(add_weight(b, tensors.prefix + "down_proj.bias", dtype, {moe.num_experts, config.hidden_size},
                                  parts.down_bias()));
  operands.insert(operands.end(), stacks.scales.begin(), stacks.scales.end());
  LayerInfo info{.moe = MoeLayer{.num_experts = moe.num_experts, .experts_per_token = moe.experts_per_token}};
  if (moe.mxfp4) info.quantisation = Quantisation{.format = "mxfp4", .group_size = kMxfp4Block};
  b.describe_layer(std::move(info));
  return b.graph.op("moe_experts", operands,
                    {{"activation", activation_name(config)},
                     {"limit", moe.swiglu_limit},
                     {"gate_up_bias", moe.expert_bias},
                     {"down_bias", down_bias},
                     {"mxfp4", moe.mxfp4}});
}

ir::ValueId moe_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                    const MoeTensors& tensors) {
  const Routing routing = route_tokens(b, config, x, slots, tensors.router);
  ir::ValueId y = add_experts(b, config, x, routing, tensors.experts);
  if (config.moe->shared_intermediate_size > 0) y = add_shared(b, config, x, y, tensors);
  if (b.options().tp_size > 1) b.graph.op("all_reduce", {y});
  return y;
}

ir::ValueId moe_or_mlp(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x, ir::ValueId slots,
                       const MoeTensors& tensors, const std::string& prefix) {
  if (config.moe && config.moe->layers[static_cast<std::size_t>(layer)]) return moe_mlp(b, config, x, slots, tensors);
  return gated_mlp(b, config, x, gate_up_blocks(config, prefix), prefix);
}

}  // namespace tessera
