#include "tessera/model/layers/moe.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/layers/expert_parts.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/layers/quantised_experts.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {
namespace {

using Packed = PackedStorage::Content;

ir::ValueId add_weight(LayerBuilder& b, const std::string& name, ir::DType dtype,
                       const std::vector<std::int64_t>& shape, std::vector<WeightPart> parts,
                       std::vector<WeightPart> elsewhere = {}) {
  WeightSpec spec{.name = name, .parts = std::move(parts), .elsewhere = std::move(elsewhere)};
  spec.type.dtype = dtype;
  for (const std::int64_t size : shape) spec.type.shape.emplace_back(size);
  return b.add_weight(std::move(spec));
}

// Adds a weight for a tensor of the checkpoint. The weight is float32 even if the model computes in another type.
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

// The weights of a rank's experts: all matrices gate_up in one weight, all matrices down in a second weight, and the
// further weights that packed or quantised experts need.
struct ExpertStacks {
  ir::ValueId gate_up = {};
  ir::ValueId down = {};
  std::vector<ir::ValueId> more = {};
  ir::Attributes attributes = {};
  bool mxfp4 = false;
};

Result<ExpertStacks> add_stacks(LayerBuilder& b, const ModelConfig& config, const ExpertParts& parts,
                                const ExpertTensors& tensors) {
  const std::string& prefix = tensors.prefix;
  if (!config.moe->mxfp4 && (tensors.layout == ExpertLayout::kSeparate || b.quantises_at_start())) {
    if (std::optional<QuantisedExperts> quantised = TRY(add_quantised_experts(b, parts, prefix)))
      return ExpertStacks{.gate_up = quantised->gate_up,
                          .down = quantised->down,
                          .more = std::move(quantised->more),
                          .attributes = std::move(quantised->attributes),
                          .mxfp4 = quantised->format.is_mxfp4()};
  }
  const std::int64_t experts = parts.local_experts();
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t size = parts.local_size();
  if (!config.moe->mxfp4) {
    const ir::DType dtype = b.options().weight_type();
    return ExpertStacks{.gate_up = add_weight(b, prefix + "gate_up_proj.weight", dtype, {experts, 2 * size, hidden},
                                              parts.gate_up(), parts.gate_up_elsewhere()),
                        .down = add_weight(b, prefix + "down_proj.weight", dtype, {experts, hidden, size}, parts.down(),
                                           parts.down_elsewhere())};
  }
  const auto gate_up = [&](const char* name, Packed content) {
    return add_weight(b, prefix + "gate_up_proj" + name, ir::DType::kUInt8,
                      {experts, 2 * size, hidden / ExpertParts::values_of(content)}, parts.packed_gate_up(content));
  };
  const auto down = [&](const char* name, Packed content) {
    return add_weight(b, prefix + "down_proj" + name, ir::DType::kUInt8,
                      {experts, hidden, size / ExpertParts::values_of(content)}, parts.packed_down(content));
  };
  for (const char* stack : {"gate_up_proj", "down_proj"})
    b.note_stored(prefix + stack, {.values = WeightFormat::Values::kE2M1,
                                   .spelling = WeightFormat::Spelling::kMxfp4,
                                   .block_rows = 1,
                                   .block_cols = kMxfp4Block});
  return ExpertStacks{.gate_up = gate_up(".blocks", Packed::kFourBits),
                      .down = down(".blocks", Packed::kFourBits),
                      .more = {gate_up(".scales", Packed::kExponents), down(".scales", Packed::kExponents)},
                      .attributes = {{"mxfp4", true}},
                      .mxfp4 = true};
}

// Returns the experts' tensors with the layout that the checkpoint really has. It may differ from the family's layout,
// because exporters store quantised experts as separate tensors even if the family uses stacks.
ExpertTensors as_stored(const LayerBuilder& b, const ModelConfig& config, const ExpertTensors& of_family) {
  ExpertTensors stored = of_family;
  if (!config.moe->mxfp4 && b.has_separate_experts(stored.prefix, stored.gate)) stored.layout = ExpertLayout::kSeparate;
  return stored;
}

// Checks that the ranks that share an expert can divide its intermediate size equally.
Status check_slices(const MoeConfig& moe, const ModelOptions& options) {
  const int ranks = options.expert_ranks() / options.ep_size;
  const std::int64_t size = moe.intermediate_size;
  const std::string sharing = fmt::format("the {} ranks that share an expert (tp_size {}, ep_size {})", ranks,
                                          options.expert_ranks(), options.ep_size);
  const char* const way_out = ranks > 1 ? "; with a larger ep_size fewer ranks share an expert" : "";
  if (size % ranks != 0)
    return invalid_argument(
        fmt::format("the experts' intermediate size is {}, which does not divide among {}{}", size, sharing, way_out));
  if (moe.mxfp4 && size / ranks % kMxfp4Block != 0)
    return invalid_argument(
        fmt::format("the experts' intermediate size is {}, of which each of {} has {}; experts in MXFP4 are cut into "
                    "multiples of {}{}",
                    size, sharing, size / ranks, kMxfp4Block, way_out));
  return ok_status();
}

// Records the weights gate_up and down as linears that adapters may change. The modules of these linears are the
// experts' matrices.
void note_experts(LayerBuilder& b, const ModelConfig& config, const ExpertParts& parts, const ExpertTensors& tensors,
                  const ExpertStacks& stacks) {
  const ExpertShare share = expert_share(*config.moe, b.options());
  const std::int64_t size = parts.whole_size();
  const std::int64_t local = parts.local_size();
  const std::int64_t hidden = config.hidden_size;
  const auto stack = [&](ir::ValueId weight, std::int64_t cols, std::int64_t first_col) {
    return AdaptableLinear{.weight = b.graph.graph().value(weight).name,
                           .experts = config.moe->num_experts,
                           .cols = cols,
                           .first_col = first_col,
                           .modules = {},
                           .ranges = {}};
  };
  AdaptableLinear gate_up = stack(stacks.gate_up, hidden, 0);
  AdaptableLinear down = stack(stacks.down, local, share.slice * local);
  const auto add = [&](AdaptableLinear& to, std::int64_t expert, const std::string& name, std::int64_t rows,
                       std::int64_t cols, std::int64_t stack_row, AdaptableRange range) {
    range.module = to.modules.size();
    to.ranges.push_back(range);
    to.modules.push_back({.name = fmt::format("{}{}.{}", tensors.prefix, expert, name),
                          .rows = rows,
                          .cols = cols,
                          .expert = expert,
                          .stack_row = stack_row});
  };
  for (std::int64_t e = share.first_expert; e < share.first_expert + share.experts; ++e) {
    const AdaptableRange of_rank{.first_row = share.slice * local, .rows = local};
    add(gate_up, e, tensors.gate, size, hidden, 0, of_rank);
    add(gate_up, e, tensors.up, size, hidden, size, of_rank);
    add(down, e, tensors.down, hidden, size, 0, {.first_row = 0, .rows = hidden});
  }
  b.note_adaptable(std::move(gate_up));
  b.note_adaptable(std::move(down));
}

// Returns y plus the result of the shared MLP. y is this rank's partial sum, so the MLP's result must be a partial sum
// too.
ir::ValueId add_shared(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId y,
                       const MoeTensors& tensors) {
  ModelConfig shared = config;
  shared.intermediate_size = config.moe->shared_intermediate_size;
  const std::vector<LinearBlock> blocks = gate_up_blocks(shared, tensors.shared);
  if (!config.moe->shared_gate) return gated_mlp(b, shared, x, blocks, tensors.shared, Parallel::kRowPart, y);
  const ir::ValueId mlp = gated_mlp(b, shared, x, blocks, tensors.shared, Parallel::kRowPart);
  const ir::ValueId gate = b.linear(tensors.shared_gate, x,
                                    {{.tensor = tensors.shared_gate, .rows = 1, .quantisable = Quantisable::kIfStored}},
                                    false, Parallel::kNone);
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
  const LinearBlock router{.tensor = tensors.weight, .rows = moe.num_experts, .quantisable = Quantisable::kIfStored};
  const ir::ValueId logits = sigmoid ? float32_router(b, config, x, tensors.weight)
                                     : b.linear(tensors.weight, x, {router}, moe.router_bias, Parallel::kNone);
  std::vector<ir::ValueId> operands{logits, slots};
  if (moe.correction_bias) operands.push_back(float32_weight(b, tensors.correction, {moe.num_experts}));
  if (!tensors.expert_scale.empty()) operands.push_back(float32_weight(b, tensors.expert_scale, {moe.num_experts}));
  // group_score depends on correction_bias, because models have either both the correction bias and the group score
  // "best_two", or neither. DeepSeek-V3 introduced them together.
  ir::Attributes attributes{{"top_k", moe.experts_per_token},
                            {"scoring", std::string(sigmoid ? "sigmoid" : "softmax")},
                            {"normalise", moe.normalise},
                            {"groups", moe.groups},
                            {"groups_per_token", moe.groups_per_token},
                            {"group_score", std::string(moe.correction_bias ? "best_two" : "best")},
                            {"scale", moe.scale},
                            {"correction", moe.correction_bias},
                            {"expert_scale", !tensors.expert_scale.empty()}};
  if (b.options().ep_size > 1) {
    const ExpertShare share = expert_share(moe, b.options());
    attributes.emplace_back("first_expert", share.first_expert);
    attributes.emplace_back("local_experts", share.experts);
  }
  const std::vector<ir::ValueId> routed = b.graph.multi_op("moe_route", operands, attributes);
  return {.ids = routed[0], .weights = routed[1]};
}

ir::ValueId add_experts(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, const Routing& routing,
                        const ExpertTensors& tensors) {
  const ExpertTensors stored = as_stored(b, config, tensors);
  const MoeConfig& moe = *config.moe;
  if (const Status status = check_slices(moe, b.options()); !status.ok()) {
    b.graph.fail(status);
    return x;
  }
  if (config.hidden_act == Activation::kGelu)
    b.graph.fail(unimplemented("experts with hidden_act \"gelu\"; accepted: silu, gelu_pytorch_tanh"));
  const ExpertParts parts(config, b.options(), stored);
  const Result<ExpertStacks> stacks = add_stacks(b, config, parts, stored);
  if (!stacks.ok()) {
    b.graph.fail(stacks.status());
    return x;
  }
  // If the graph has failed, the stacks are not values of the graph, and note_experts() must not look at them.
  if (b.graph.ok() && stacks->more.empty() && !moe.expert_bias && moe.swiglu_limit == 0)
    note_experts(b, config, parts, stored, *stacks);
  const ir::DType dtype = b.options().weight_type();
  const bool down_bias = moe.expert_bias && parts.adds_down_bias();
  std::vector<ir::ValueId> operands{x, routing.ids, routing.weights, stacks->gate_up, stacks->down};
  if (moe.expert_bias)
    operands.push_back(add_weight(b, tensors.prefix + "gate_up_proj.bias", dtype,
                                  {parts.local_experts(), 2 * parts.local_size()}, parts.gate_up_bias()));
  if (down_bias)
    operands.push_back(add_weight(b, tensors.prefix + "down_proj.bias", dtype,
                                  {parts.local_experts(), config.hidden_size}, parts.down_bias()));
  operands.insert(operands.end(), stacks->more.begin(), stacks->more.end());
  LayerInfo info{.moe = MoeLayer{.num_experts = moe.num_experts, .experts_per_token = moe.experts_per_token}};
  if (stacks->mxfp4) info.quantisation = Quantisation{.format = "mxfp4", .group_size = kMxfp4Block};
  b.describe_layer(std::move(info));
  ir::Attributes attributes{{"activation", activation_name(config)},
                            {"limit", moe.swiglu_limit},
                            {"gate_up_bias", moe.expert_bias},
                            {"down_bias", down_bias}};
  attributes.insert(attributes.end(), stacks->attributes.begin(), stacks->attributes.end());
  if (parts.local_experts() < moe.num_experts) attributes.emplace_back("routed_experts", moe.num_experts);
  return b.graph.op("moe_experts", operands, attributes);
}

ir::ValueId moe_mlp(LayerBuilder& b, const ModelConfig& config, ir::ValueId x, ir::ValueId slots,
                    const MoeTensors& tensors) {
  const ir::ValueId rows = b.rows_of_all_ranks(x);
  const Routing routing = route_tokens(b, config, rows, b.rows_of_all_ranks(slots), tensors.router);
  ir::ValueId y = b.sums_of_own_rows(add_experts(b, config, rows, routing, tensors.experts));
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
