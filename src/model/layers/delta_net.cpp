#include "tessera/model/layers/delta_net.h"

#include <fmt/format.h>

#include "tessera/model/layers/cache.h"
#include "tessera/ops/recurrent/gated_delta_net.h"

namespace tessera {
namespace {

// The heads of a layer on one rank: consecutive key heads, and the value heads that use them.
struct LocalDeltaNet {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t first_key_head = 0;
  std::int64_t first_value_head = 0;

  std::int64_t channels(const DeltaNetConfig& net) const {
    return 2 * key_heads * net.key_head_dim + value_heads * net.value_head_dim;
  }
};

LocalDeltaNet local_delta_net(LayerBuilder& b, const DeltaNetConfig& net) {
  const std::int64_t ranks = b.options().tp_size;
  if (net.key_heads % ranks != 0)
    b.graph.fail(invalid_argument(
        fmt::format("linear_num_key_heads is {}, which does not divide among {} ranks", net.key_heads, ranks)));
  const std::int64_t key_heads = std::max<std::int64_t>(1, net.key_heads / ranks);
  const std::int64_t shared = net.value_heads / net.key_heads;
  return {.key_heads = key_heads,
          .value_heads = key_heads * shared,
          .first_key_head = key_heads * b.options().tp_rank,
          .first_value_head = key_heads * shared * b.options().tp_rank};
}

std::int64_t all_channels(const DeltaNetConfig& net) {
  return 2 * net.key_heads * net.key_head_dim + net.value_heads * net.value_head_dim;
}

// Returns this rank's slices of a tensor whose rows (or channels) are queries, then keys, then values.
std::vector<TensorSlice> local_channels(const DeltaNetConfig& net, const LocalDeltaNet& local) {
  const std::int64_t keys = net.key_heads * net.key_head_dim;
  const TensorSlice queries{
      .dim = 0, .begin = local.first_key_head * net.key_head_dim, .size = local.key_heads * net.key_head_dim};
  return {queries,
          {.dim = 0, .begin = keys + queries.begin, .size = queries.size},
          {.dim = 0,
           .begin = 2 * keys + local.first_value_head * net.value_head_dim,
           .size = local.value_heads * net.value_head_dim}};
}

// Adds the convolution's matrix [channels, taps], which is stored as [channels, 1, taps].
ir::ValueId conv_weight(LayerBuilder& b, const DeltaNetConfig& net, const LocalDeltaNet& local,
                        const std::string& tensor) {
  WeightSpec spec{.name = tensor,
                  .type = {b.options().weight_type(), {ir::Dim(local.channels(net)), ir::Dim(net.conv_size)}}};
  for (const TensorSlice& slice : local_channels(net, local))
    spec.parts.push_back({.tensor = tensor, .shape = {all_channels(net), 1, net.conv_size}, .slice = slice});
  return b.add_weight(std::move(spec));
}

// Adds a slice of a vector as float32 even if the checkpoint stores another type, because operators use the vector in
// exponents or multiply by it in float32.
ir::ValueId float_vector(LayerBuilder& b, const std::string& tensor, std::int64_t size, const TensorSlice& slice,
                         WeightSpec::Init init) {
  const std::int64_t elements = slice.size < 0 ? size : slice.size;
  WeightSpec spec{.name = tensor, .type = {ir::DType::kFloat32, {ir::Dim(elements)}}, .dummy_init = init};
  spec.parts.push_back({.tensor = tensor, .shape = {size}, .slice = slice});
  return b.add_weight(std::move(spec));
}

}  // namespace

DeltaNetBlocks delta_net_blocks(LayerBuilder& b, const ModelConfig& config, const std::string& prefix) {
  const DeltaNetConfig& net = *config.delta_net;
  const LocalDeltaNet local = local_delta_net(b, net);
  DeltaNetBlocks blocks;
  for (const TensorSlice& slice : local_channels(net, local))
    blocks.qkvz.push_back({.tensor = prefix + "in_proj_qkv",
                           .rows = slice.size,
                           .first_row = slice.begin,
                           .tensor_rows = all_channels(net)});
  blocks.qkvz.push_back({.tensor = prefix + "in_proj_z",
                         .rows = local.value_heads * net.value_head_dim,
                         .first_row = local.first_value_head * net.value_head_dim,
                         .tensor_rows = net.value_heads * net.value_head_dim});
  for (const char* tensor : {"in_proj_b", "in_proj_a"})
    blocks.ba.push_back({.tensor = prefix + tensor,
                         .rows = local.value_heads,
                         .first_row = local.first_value_head,
                         .tensor_rows = net.value_heads,
                         .quantisable = Quantisable::kIfStored});
  return blocks;
}

DeltaNetBlocks joint_delta_net_blocks(LayerBuilder& b, const ModelConfig& config, const std::string& prefix) {
  const DeltaNetConfig& net = *config.delta_net;
  const LocalDeltaNet local = local_delta_net(b, net);
  const std::int64_t shared = net.value_heads / net.key_heads;
  DeltaNetBlocks blocks;
  // Adds `rows` rows of each local key head, from row `first` on. A key head has `stride` rows in the tensor.
  const auto add = [&](std::vector<LinearBlock>& to, const char* tensor, std::int64_t stride, std::int64_t first,
                       std::int64_t rows, Quantisable quantisable = Quantisable::kYes) {
    for (std::int64_t head = 0; head < local.key_heads; ++head)
      to.push_back({.tensor = prefix + tensor,
                    .rows = rows,
                    .first_row = (local.first_key_head + head) * stride + first,
                    .tensor_rows = net.key_heads * stride,
                    .quantisable = quantisable});
  };
  const std::int64_t values = shared * net.value_head_dim;
  const std::int64_t stride = 2 * net.key_head_dim + 2 * values;
  add(blocks.qkvz, "in_proj_qkvz", stride, 0, net.key_head_dim);
  add(blocks.qkvz, "in_proj_qkvz", stride, net.key_head_dim, net.key_head_dim);
  add(blocks.qkvz, "in_proj_qkvz", stride, 2 * net.key_head_dim, values);
  add(blocks.qkvz, "in_proj_qkvz", stride, 2 * net.key_head_dim + values, values);
  add(blocks.ba, "in_proj_ba", 2 * shared, 0, shared, Quantisable::kIfStored);
  add(blocks.ba, "in_proj_ba", 2 * shared, shared, shared, Quantisable::kIfStored);
  return blocks;
}

ir::ValueId delta_net(LayerBuilder& b, const ModelConfig& config, std::int64_t layer, ir::ValueId x,
                      const DeltaNetBlocks& blocks, const std::string& prefix) {
  if (!b.graph.ok()) return x;
  const DeltaNetConfig& net = *config.delta_net;
  const LocalDeltaNet local = local_delta_net(b, net);
  const std::size_t group = cache_group_of_layer(config, layer);
  const ir::Dim slots = ir::page_symbol(group);
  const std::int64_t drafts = b.options().max_drafts;
  ir::Attributes of_group{{"group", static_cast<std::int64_t>(group)}};
  if (drafts > 0) of_group.emplace_back("drafts", drafts);
  const TensorSlice heads{.dim = 0, .begin = local.first_value_head, .size = local.value_heads};

  // The blocks already contain only this rank's rows, so the linears must not divide them among ranks again (kNone).
  const ir::ValueId qkvz = b.linear(prefix + "in_proj_qkvz", x, blocks.qkvz, false, Parallel::kNone);
  const ir::ValueId ba = b.linear(prefix + "in_proj_ba", x, blocks.ba, false, Parallel::kNone);
  const ir::ValueId rows =
      b.graph.state(fmt::format("conv_state.{}", layer),
                    {b.options().dtype, {slots, ir::Dim(net.conv_size - 1 + drafts), ir::Dim(local.channels(net))}});
  const ir::ValueId qkv =
      b.graph.op("causal_conv", {qkvz, conv_weight(b, net, local, prefix + "conv1d.weight"), rows}, of_group);

  const ir::ValueId state =
      b.graph.state(fmt::format("delta_state.{}", layer),
                    {ir::DType::kFloat32,
                     {slots, ir::Dim(local.value_heads), ir::Dim(net.key_head_dim), ir::Dim(net.value_head_dim)}});
  const ir::ValueId a_log = float_vector(b, prefix + "A_log", net.value_heads, heads, WeightSpec::Init::kUniform);
  const ir::ValueId dt_bias = float_vector(b, prefix + "dt_bias", net.value_heads, heads, WeightSpec::Init::kUniform);
  ir::Attributes attributes = of_group;
  attributes.emplace_back("key_heads", local.key_heads);
  std::vector<ir::ValueId> operands{qkv, ba, a_log, dt_bias, state};
  if (drafts > 0) {
    const DraftLayout layout{.drafts = static_cast<int>(drafts),
                             .keys = static_cast<int>(local.key_heads * net.key_head_dim),
                             .gates = static_cast<int>(2 * local.value_heads),
                             .values = static_cast<int>(local.value_heads * net.value_head_dim)};
    operands.push_back(
        b.graph.state(fmt::format("delta_drafts.{}", layer), {b.options().dtype, {slots, ir::Dim(layout.size())}}));
  }
  const ir::ValueId mixed = b.graph.op("gated_delta_net", operands, attributes);

  const ir::ValueId w =
      float_vector(b, prefix + "norm.weight", net.value_head_dim, TensorSlice{}, WeightSpec::Init::kOnes);
  const ir::ValueId gated =
      b.graph.op("gated_norm", {mixed, qkvz, w}, {{"eps", config.rms_norm_eps}, {"column", local.channels(net)}});
  return b.linear(prefix + "out_proj", gated, {{.tensor = prefix + "out_proj", .rows = config.hidden_size}}, false,
                  Parallel::kRow);
}

}  // namespace tessera
