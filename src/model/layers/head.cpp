#include "tessera/model/layers/head.h"

namespace tessera {

ir::ValueId resolve_ids(LayerBuilder& b, const TokenInputs& inputs, const ir::Attributes& attributes) {
  return b.graph.op("resolve_ids", {inputs.ids, inputs.rows, inputs.last_ids}, attributes);
}

ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs) {
  return embed(b, config, inputs, resolve_ids(b, inputs));
}

ir::ValueId embed(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, ir::ValueId ids) {
  const ir::ValueId table = b.matrix(b.tensor("embed_tokens.weight"), config.vocab_size, config.hidden_size);
  ir::Attributes attributes;
  if (config.embedding_scale != 1) attributes.emplace_back("scale", config.embedding_scale);
  return b.graph.op("embedding", {ids, table, inputs.embedding_rows, inputs.embeddings}, attributes);
}

ir::ValueId with_deepstack(LayerBuilder& b, const ModelConfig& config, const TokenInputs& inputs, std::int64_t layer,
                           ir::ValueId branch) {
  if (!config.images || layer >= config.images->deepstack_levels) return branch;
  return b.graph.op("add_given", {branch, inputs.embedding_rows, inputs.embeddings}, {{"part", layer + 1}});
}

ir::ValueId logits(LayerBuilder& b, const ModelConfig& config, const HeadInputs& inputs) {
  const ir::ValueId wanted = b.graph.op("gather_rows", {inputs.hidden, inputs.wanted_rows});
  // A vocabulary that does not divide among the ranks is computed by each of them, and so are the labels of a
  // classifier.
  const int ranks = b.options().tp_size;
  const bool sliced = ranks > 1 && config.num_labels == 0 && config.vocab_size % ranks == 0;
  const std::string own = config.num_labels > 0 ? "score" : "lm_head";
  const bool tied = config.tie_word_embeddings && config.num_labels == 0;
  const std::string tensor = tied ? b.tensor("embed_tokens") : own;
  const std::string name = sliced ? "lm_head.slice" : tensor;  // a tied head is the embedding's own memory
  ir::ValueId y = b.linear(name, wanted, {{.tensor = tensor, .rows = config.num_logits()}}, false,
                           sliced ? Parallel::kColumn : Parallel::kNone);
  if (sliced) y = b.graph.op("all_gather", {y}, {{"ranks", std::int64_t{ranks}}});
  if (b.options().dtype != ir::DType::kFloat32) y = b.graph.op("cast", {y}, {{"dtype", std::string("f32")}});
  return config.logit_softcap > 0 ? b.graph.op("softcap", {y}, {{"cap", config.logit_softcap}}) : y;
}

}  // namespace tessera
