#include "tessera/model/families/eagle3.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/model/layers/attention.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/mlp.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

using ir::ValueId;

std::string named(std::string_view tensor) { return std::string(kEaglePrefix) + std::string(tensor); }

// Returns config.json with Llama as its architecture, because all its other fields are those of Llama.
Result<Json> as_llama(const Json& json, const std::string& file) {
  const Json* const names = json.find("architectures");
  const bool one =
      names != nullptr && names->is_array() && names->as_array().size() == 1 && names->as_array()[0].is_string();
  const std::string name = one ? names->as_array()[0].as_string() : "none";
  if (name != "LlamaForCausalLMEagle3" && name != "Eagle3LlamaForCausalLM")
    return unimplemented(
        fmt::format("{}: a draft of architecture \"{}\"; accepted: LlamaForCausalLMEagle3, "
                    "Eagle3LlamaForCausalLM",
                    file, name));
  Json::Object members;
  for (const auto& [key, value] : json.as_object())
    if (key != "architectures") members.emplace_back(key, value);
  Json changed = Json::object(std::move(members));
  changed.set("architectures", Json(Json::Array{Json("LlamaForCausalLM")}));
  return changed;
}

// Returns the three layers of the target whose inputs are concatenated. A config names the layers whose *outputs* are
// concatenated. The output of layer i is the input of layer i + 1, so 1 is added to each number in the config. If the
// config names no layers, the result is the layers of the paper's code.
Result<std::vector<std::int64_t>> read_aux_layers(const Json& json, const std::string& file, std::int64_t layers) {
  std::vector<std::int64_t> aux{2, layers / 2, layers - 3};
  const Json* const eagle = json.find("eagle_config");
  const Json* const ids =
      eagle != nullptr && eagle->is_object() ? eagle->find("eagle_aux_hidden_state_layer_ids") : nullptr;
  if (ids != nullptr) {
    aux.clear();
    const bool list =
        ids->is_array() && std::ranges::all_of(ids->as_array(), [](const Json& id) { return id.is_int(); });
    for (std::size_t i = 0; list && i < ids->as_array().size(); ++i) aux.push_back(ids->as_array()[i].as_int() + 1);
  }
  std::ranges::sort(aux);
  const bool distinct = std::ranges::adjacent_find(aux) == aux.end();
  if (aux.size() != 3 || !distinct || aux.front() < 0 || aux.back() >= layers)
    return invalid_argument(
        fmt::format("{}: the draft joins the inputs of the layers {}, but the target has {} layers, 0 "
                    "to {}; three different ones of them are accepted",
                    file, fmt::join(aux, ", "), layers, layers - 1));
  return aux;
}

Status check_sizes(const ModelConfig& draft, const ModelConfig& target, const std::string& file) {
  const auto equal = [&](std::string_view field, std::int64_t own, std::int64_t wanted) -> Status {
    if (own == wanted) return ok_status();
    return invalid_argument(fmt::format("{}: {} is {}, but the model has {}; the draft was made for another model",
                                        file, field, own, wanted));
  };
  TRY(equal("hidden_size", draft.hidden_size, target.hidden_size));
  TRY(equal("vocab_size", draft.vocab_size, target.vocab_size));
  return equal("num_hidden_layers", draft.num_hidden_layers, 1);
}

// Returns the draft's config, changed so that the draft layer counts as the layer after the target's last layer.
ModelConfig behind(const ModelConfig& target, ModelConfig draft) {
  const ModelConfig longer = with_draft_layer(target);
  draft.num_hidden_layers = longer.num_hidden_layers;
  draft.sliding_windows = longer.sliding_windows;
  draft.delta_net = longer.delta_net;
  draft.images = target.images;
  draft.tie_word_embeddings = false;
  return draft;
}

Status read_target_ids(EagleDraft& draft, std::int64_t target_vocab) {
  const StoredTensor* const stored = draft.checkpoint->find("d2t");
  if (stored == nullptr) {
    if (draft.vocab_size == target_vocab) return ok_status();
    return invalid_argument(fmt::format("{}: d2t is missing, and the head has {} of the model's {} ids",
                                        draft.checkpoint->model_path(), draft.vocab_size, target_vocab));
  }
  const StoredTensor d2t = TRY(draft.checkpoint->get("d2t", {{draft.vocab_size}}, {{StoredDtype::kI64}}));
  for (std::int64_t id = 0; id < draft.vocab_size; ++id) {
    std::int64_t distance = 0;
    std::memcpy(&distance, d2t.data.data() + static_cast<std::size_t>(id) * sizeof(distance), sizeof(distance));
    if (distance < -id || distance >= target_vocab - id)
      return invalid_argument(fmt::format("{}: d2t[{}] is {}; the resulting id is outside the model's {} ids",
                                          draft.checkpoint->model_path(), id, distance, target_vocab));
    draft.target_ids.emplace_back(static_cast<std::int32_t>(id + distance));
  }
  return ok_status();
}

Status read_tensors(const std::string& folder, const ModelConfig& target, EagleDraft& draft) {
  draft.checkpoint = std::make_shared<const Checkpoint>(TRY(Checkpoint::open(folder)));
  draft.own_embedding = draft.checkpoint->find("embed_tokens.weight") != nullptr;
  if (draft.checkpoint->find("midlayer.hidden_norm.weight") == nullptr &&
      draft.checkpoint->find("layers.0.hidden_norm.weight") != nullptr)
    draft.layer = "layers.0.";
  TRY(draft.checkpoint->get("fc.weight", {target.hidden_size, 3 * target.hidden_size}));
  return read_target_ids(draft, target.vocab_size);
}

}  // namespace

Result<EagleDraft> read_eagle3(const std::string& folder, const ModelConfig& target, const FamilyRegistry& families,
                               bool reads_weights) {
  const std::string file = config_file(folder).string();
  const Json json = TRY(Json::read_file(file));
  if (!json.is_object()) return invalid_argument(fmt::format("{}: an object is accepted", file));
  const ModelConfig config = TRY(ModelConfig::from_json(TRY(as_llama(json, file)), file, families));
  TRY(check_sizes(config, target, file));
  if (config.formats.any()) return unimplemented(fmt::format("{}: a quantised draft is not supported", file));
  std::vector<std::int64_t> aux_layers = TRY(read_aux_layers(json, file, target.num_hidden_layers));
  EagleDraft draft{
      .config = behind(target, config), .vocab_size = config.vocab_size, .aux_layers = std::move(aux_layers)};
  if (const Json* const vocab = json.find("draft_vocab_size"); vocab != nullptr) {
    if (!vocab->is_int() || vocab->as_int() < 1 || vocab->as_int() > target.vocab_size)
      return invalid_argument(
          fmt::format("{}: draft_vocab_size is {}; 1 to {} is accepted", file, vocab->dump(), target.vocab_size));
    draft.vocab_size = vocab->as_int();
  }
  if (reads_weights) TRY(read_tensors(model_folder(folder), target, draft));
  return draft;
}

Result<ValueId> fuse_layer_inputs(LayerBuilder& b, const EagleDraft& draft) {
  std::vector<ValueId> inputs;
  for (const std::int64_t layer : draft.aux_layers) {
    const std::optional<ValueId> input = b.layer_input(layer);
    if (!input)
      return unimplemented(fmt::format(
          "EAGLE-3: the target's layer {} does not begin with a norm of its input, which is needed", layer));
    inputs.push_back(*input);
  }
  const LinearBlock fc{.tensor = named("fc"), .rows = draft.config.hidden_size, .quantisable = Quantisable::kNo};
  return b.linear(fc.tensor, b.graph.op("join", inputs), {fc}, false, Parallel::kNone);
}

ValueId build_eagle3_layer(LayerBuilder& b, const EagleDraft& draft, const ModelConfig& target) {
  const ModelConfig& config = draft.config;
  const std::int64_t layer = config.num_hidden_layers - 1;
  const std::string p = named(draft.layer);
  const std::string attn = p + "self_attn.";
  const TokenInputs tokens = declare_token_inputs(b, config);
  const ValueId embedding = embed(b, draft.own_embedding ? config : target, tokens);
  const ValueId hidden = given_hidden(b, config);
  ResidualStream h(b, hidden, config);
  b.begin_layer(layer);
  const ValueId x = b.graph.op(
      "join", {h.norm_of(embedding, p + "input_layernorm.weight"), h.norm_of(hidden, p + "hidden_norm.weight")});
  const AttentionInputs shared{
      .config = config,
      .tokens = tokens,
      .rope = rope_table(b, config, tokens, config.rope, config.head_dim, named("rope.inv_freq"))};
  h.add(self_attention(b, shared, layer, x, qkv_blocks(config, attn), attn));
  const std::string mlp = p + "mlp.";
  h.add(gated_mlp(b, config, h.norm(p + "post_attention_layernorm.weight"), gate_up_blocks(config, mlp), mlp));
  b.end_layers();
  return h.value();
}

ValueId build_eagle3_head(LayerBuilder& b, const EagleDraft& draft) {
  const HeadInputs inputs = declare_head_inputs(b, draft.config.hidden_size);
  const ValueId rows = b.graph.op("gather_rows", {inputs.hidden, inputs.wanted_rows});
  const ValueId normed = ResidualStream(b, rows, draft.config).norm(named("norm.weight"));
  const std::string head = named("lm_head");
  return all_logits(b, head, normed, {.tensor = head, .rows = draft.vocab_size});
}

WeightSource with_eagle3(WeightSource model, const EagleDraft& draft) {
  return [model = std::move(model), own = checkpoint_source(draft.checkpoint)](
             const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
             std::span<std::byte> to) -> Status {
    if (!part.tensor.starts_with(kEaglePrefix)) return model(spec, part, dtype, runs, to);
    WeightPart renamed = part;
    renamed.tensor.erase(0, kEaglePrefix.size());
    return own(spec, renamed, dtype, runs, to).with_context("the draft");
  };
}

}  // namespace tessera
