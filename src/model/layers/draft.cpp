#include "tessera/model/layers/draft.h"

#include <fmt/format.h>

#include "tessera/model/family.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/model.h"

namespace tessera {

Status check_draft_layer(const ModelConfig& config, const FamilyRegistry& families) {
  const ModelFamily& family = *families.find(config.architecture);
  if (family.build_draft == nullptr)
    return unimplemented(fmt::format("a next-token layer (MTP) of {} is not supported", family.architecture));
  if (config.draft_layers == 0)
    return invalid_argument(
        "the checkpoint has no next-token layer (MTP): config.json has neither num_nextn_predict_layers nor "
        "mtp_num_hidden_layers, or it is 0");
  if (config.draft_layers > 1)
    return unimplemented(
        fmt::format("the checkpoint has {} next-token layers (MTP); one is supported", config.draft_layers));
  if (family.make_body || family.change_body)
    return unimplemented(fmt::format(
        "a next-token layer (MTP) of {}, whose body is written as text or changed by its family, is not supported",
        family.architecture));
  return ok_status();
}

ir::ValueId given_hidden(LayerBuilder& b, const ModelConfig& config) {
  const ir::ValueId hidden = b.graph.input(std::string(input_names::kDraftHidden),
                                           {b.options().dtype, {b.options().max_draft_rows, config.hidden_size}});
  const ir::ValueId rows =
      b.graph.input(std::string(input_names::kDraftRows), {ir::DType::kInt32, {ir::Symbol::kTokens}});
  return b.graph.op("gather_rows", {hidden, rows});
}

ModelConfig with_draft_layer(const ModelConfig& config) {
  ModelConfig longer = config;
  ++longer.num_hidden_layers;
  longer.sliding_windows.push_back(0);
  if (longer.moe) longer.moe->layers.push_back(true);
  if (longer.delta_net) longer.delta_net->layers.push_back(false);
  return longer;
}

ir::ValueId next_token_layer(LayerBuilder& b, const ModelConfig& config, std::span<const ir::CacheGroup> groups,
                             const DraftTensors& tensors, const DraftLayer& add_layer) {
  const std::int64_t layer = config.num_hidden_layers - 1;
  const TokenInputs tokens = declare_token_inputs(b, config, groups);
  const ir::ValueId embedding = ResidualStream(b, embed(b, config, tokens), config).norm(tensors.embedding_norm);
  const ir::ValueId hidden = ResidualStream(b, given_hidden(b, config), config).norm(tensors.hidden_norm);
  const std::string prefix = b.begin_layer(layer);
  const ir::ValueId x = b.linear(tensors.projection, b.graph.op("join", {embedding, hidden}),
                                 {{.tensor = tensors.projection, .rows = config.hidden_size}}, false, Parallel::kNone);
  ResidualStream h(b, x, config);
  add_layer(h, {.config = config, .tokens = tokens, .rope = rope_table(b, config, tokens)}, layer, prefix);
  b.end_layers();
  return h.norm(tensors.final_norm);
}

DraftTensors nextn_tensors(const LayerBuilder& b, const ModelConfig& config) {
  const std::string p = b.tensor(fmt::format("layers.{}.", config.num_hidden_layers - 1));
  return {.embedding_norm = p + "enorm.weight",
          .hidden_norm = p + "hnorm.weight",
          .projection = p + "eh_proj",
          .final_norm = p + "shared_head.norm.weight"};
}

}  // namespace tessera
