#include "tessera/model/families/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/rename_tensors.h"
#include "tessera/model/sampler.h"
#include "tessera/model/weights/join_weights.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

std::string prefixed(const std::string& name) { return std::string(kDraftModelPrefix) + name; }

// Returns why a model of this kind cannot draft for another model; empty if it can.
std::string_view why_unfit(const ModelConfig& config, const ModelFamily& family) {
  if (family.make_body || family.change_body) return "its body is written as text or changed by its family";
  if (config.moe) return "it is a mixture of experts";
  if (config.mla) return "it caches latents";
  if (config.delta_net) return "it has recurrent layers";
  if (config.any_sliding_window()) return "it has sliding windows";
  if (config.images || config.vision) return "it reads images";
  return {};
}

Status check_family(const ModelConfig& config, const FamilyRegistry& families, const std::string& file) {
  const std::string_view why = why_unfit(config, *families.find(config.architecture));
  if (!why.empty())
    return unimplemented(
        fmt::format("{}: {} as a draft model is not supported, because {}; accepted: dense models "
                    "whose layers all have full attention, such as Llama, Mistral, Qwen2 and Qwen3",
                    file, config.architecture, why));
  if (config.num_labels > 0)
    return invalid_argument(fmt::format("{}: {} is a classifier, which drafts no tokens", file, config.architecture));
  return ok_status();
}

// Refuses an EAGLE-3 layer with an error that says how to use it. ModelConfig::read() would only report an unknown
// architecture.
Status check_no_eagle(const std::string& file) {
  const Result<Json> json = Json::read_file(file);
  const Json* const names = json.ok() && json->is_object() ? json->find("architectures") : nullptr;
  if (names == nullptr || !names->is_array()) return ok_status();
  for (const Json& name : names->as_array())
    if (name.is_string() && name.as_string().find("Eagle") != std::string::npos)
      return invalid_argument(
          fmt::format("{}: {} is a draft layer and no draft model; speculative_algorithm EAGLE3 takes EAGLE-3's", file,
                      name.as_string()));
  return ok_status();
}

StoredTypeOf stored_types_of(std::shared_ptr<const Checkpoint> checkpoint) {
  if (checkpoint == nullptr) return {};
  return [checkpoint = std::move(checkpoint)](std::string_view tensor) -> std::optional<StoredDtype> {
    const StoredTensor* const stored = checkpoint->find(tensor);
    return stored != nullptr ? std::optional(stored->dtype) : std::nullopt;
  };
}

// Returns the place of the draft's layers, which follow the target's layers.
GuestPlace place_behind(ModelGraphs& target, std::int64_t layers) {
  GuestPlace place{.first_layer = target.own_layers.end, .groups = {}, .group = full_group(target.body)};
  place.groups = target.body.cache_groups;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    place.groups[place.group].layers.push_back(place.first_layer + layer);
  return place;
}

// Finishes the graph of `b`, and gives its result the name `name`. Moves the weights, and what the builder recorded
// about the formats of linears, to `target`. Puts kDraftModelPrefix before the names of the weights and modules.
Result<ir::Graph> finish(LayerBuilder& b, ir::ValueId output, const ModelFamily& family, const char* name,
                         ModelGraphs& target) {
  b.graph.output(output);
  ir::Graph graph = TRY(b.graph.finish());
  graph.value(output).name = name;
  for (const ir::ValueId weight : graph.weights) graph.value(weight).name = prefixed(graph.value(weight).name);
  std::vector<WeightSpec> weights = b.take_weights();
  for (WeightSpec& weight : weights) weight.name = prefixed(weight.name);
  if (family.tensor_name) rename_tensors(family.tensor_name, weights);
  rename_tensors(prefixed, weights);
  TRY(join_weights(graph.name, std::move(weights), target.weights));
  const auto take = [](auto records, auto& to) {
    for (auto& record : records) record.module = prefixed(record.module);
    std::ranges::move(records, std::back_inserter(to));
  };
  take(b.take_stored(), target.stored);
  take(b.take_dequantised(), target.dequantised);
  take(b.take_at_start(), target.at_start);
  return graph;
}

ir::ValueId head_of(LayerBuilder& b, const ModelConfig& config, std::int64_t ids, bool quantise) {
  const HeadInputs inputs = declare_head_inputs(b, config.hidden_size);
  return quantise || ids < config.vocab_size ? draft_logits(b, config, inputs, ids) : logits(b, config, inputs, false);
}

}  // namespace

Result<DraftModel> read_draft_model(const std::string& folder, const ModelConfig& target,
                                    const FamilyRegistry& families, bool reads_weights) {
  if (TRY(find_gguf(folder)))
    return unimplemented(fmt::format("{}: a GGUF file as a draft model is not supported", folder));
  const std::string file = config_file(folder).string();
  TRY(check_no_eagle(file));
  DraftModel draft{.config = TRY(ModelConfig::read(folder, families))};
  TRY(check_family(draft.config, families, file));
  draft.ids = std::min(draft.config.vocab_size, target.vocab_size);
  if (reads_weights) draft.checkpoint = std::make_shared<const Checkpoint>(TRY(Checkpoint::open(model_folder(folder))));
  return draft;
}

Result<DraftGraphs> build_draft_model(const ModelOptions& options, const ir::OpTable& ops,
                                      const FamilyRegistry& families, ModelGraphs& target) {
  const DraftModel& draft = *options.draft_model;
  const ModelConfig& config = draft.config;
  const ModelFamily& family = *families.find(config.architecture);
  if (config.num_attention_heads % options.tp_size != 0)
    return invalid_argument(
        fmt::format("the draft model: num_attention_heads is {}, which does not divide among {} "
                    "ranks",
                    config.num_attention_heads, options.tp_size));
  ModelOptions own = options;
  own.stored_type = stored_types_of(draft.checkpoint);
  own.stored_blocks = {};
  own.guest = place_behind(target, config.num_hidden_layers);
  const WeightFormats formats =
      options.draft_format ? config.formats.quantised_at_start(*options.draft_format) : config.formats;
  DraftGraphs made;
  made.body_output = std::nullopt;
  LayerBuilder body("draft", own, ops, config.tensor_prefix, formats);
  const ir::ValueId hidden = family.build_body(body, config);
  // The body does not read this input. The input's shape tells the runner how many of the body's rows to keep for the
  // head.
  body.graph.input(std::string(input_names::kDraftHidden),
                   {options.dtype, {options.max_draft_rows, config.hidden_size}});
  made.body = TRY(finish(body, hidden, family, "hidden", target));
  const std::int64_t ids = options.draft_vocab > 0 ? std::min(options.draft_vocab, draft.ids) : draft.ids;
  LayerBuilder head("draft_head", own, ops, config.tensor_prefix, formats);
  made.head = TRY(finish(head, head_of(head, config, ids, options.draft_format.has_value()), family, "logits", target));
  made.sampler = TRY(build_sampler(ids, ops));
  return made;
}

WeightSource with_draft_model(WeightSource model, const DraftModel& draft) {
  return [model = std::move(model), own = checkpoint_source(draft.checkpoint)](
             const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
             std::span<std::byte> to) -> Status {
    if (!part.tensor.starts_with(kDraftModelPrefix)) return model(spec, part, dtype, runs, to);
    WeightPart stored = part;
    rename_tensors([](const std::string& name) { return name.substr(kDraftModelPrefix.size()); }, stored);
    return own(spec, stored, dtype, runs, to).with_context("the draft model");
  };
}

}  // namespace tessera
