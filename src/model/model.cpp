#include "tessera/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tessera/model/families/draft_model.h"
#include "tessera/model/families/eagle3.h"
#include "tessera/model/family.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/layers/head.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/rename_tensors.h"
#include "tessera/model/sampler.h"
#include "tessera/model/weights/join_weights.h"
#include "tessera/ops/cache/cache_type.h"

namespace tessera {
namespace {

Status check_experts(const ModelConfig& config, const ModelOptions& options) {
  const int parts = options.ep_size;
  if (parts == 1) return ok_status();
  if (parts < 1 || options.expert_ranks() % parts != 0)
    return invalid_argument(
        fmt::format("ep_size: {} is not accepted; it must divide tp_size, which is {}", parts, options.expert_ranks()));
  if (!config.moe) return invalid_argument(fmt::format("ep_size: {} is not accepted; the model has no experts", parts));
  if (config.moe->num_experts % parts != 0)
    return invalid_argument(fmt::format("ep_size: the model has {} experts, which do not divide into {} equal parts",
                                        config.moe->num_experts, parts));
  return ok_status();
}

// Checks the options for data parallelism in attention, in which each rank processes its own tokens.
Status check_own_tokens(const ModelConfig& config, const ModelOptions& options) {
  if (options.dp_size == 1) return ok_status();
  if (options.tp_size > 1 || options.pp_size > 1)
    return unimplemented(
        "enable_dp_attention with sliced attention or pipeline stages is not supported; accepted with it: tp_size "
        "alone");
  if (!config.moe)
    return invalid_argument(
        "enable_dp_attention: the model has no experts for ranks to share; dp_size runs several engines of it");
  if (config.vision) return unimplemented("enable_dp_attention: models with a vision tower are not accepted");
  return ok_status();
}

Status check_stages(const ModelConfig& config, const ModelFamily& family, int stages) {
  if (stages == 1) return ok_status();
  if (stages < 1 || stages > config.num_hidden_layers)
    return invalid_argument(fmt::format("pp_size: {} is not accepted; 1 to {}, the number of layers, is", stages,
                                        config.num_hidden_layers));
  if (config.vision)
    return unimplemented(
        fmt::format("pp_size: {} stages of {}, which has a vision tower; 1 is accepted", stages, family.architecture));
  if (family.make_body || family.change_body)
    return unimplemented(
        fmt::format("pp_size: {} stages of {}, whose body is written as text or changed by its family; 1 is accepted",
                    stages, family.architecture));
  return ok_status();
}

Status check_options(const ModelConfig& config, const ModelOptions& options) {
  if (config.num_attention_heads % options.tp_size != 0) {
    return invalid_argument(fmt::format("num_attention_heads is {}, which does not divide among {} ranks",
                                        config.num_attention_heads, options.tp_size));
  }
  TRY(check_own_tokens(config, options));
  TRY(check_experts(config, options));
  if (options.weight_type() != options.dtype) {
    return unimplemented(fmt::format(
        "weights of type {} beside activations of type {}; accepted: {}, as no matmul "
        "takes two types",
        ir::dtype_name(options.weight_type()), ir::dtype_name(options.dtype), ir::dtype_name(options.dtype)));
  }
  const ir::DType cache = options.kv_cache_type();
  if (!is_cache_type(cache))
    return unimplemented(fmt::format("a KV cache of type {}; accepted: {}", ir::dtype_name(cache), kCacheTypes));
  if (!ir::is_floating_point(cache) && config.mla)
    return unimplemented(fmt::format(
        "kv_cache_dtype: a cache of {} ({}) is not supported for latent attention; accepted: auto, float32, bfloat16, "
        "float16",
        ir::dtype_name(cache), is_int8_cache(cache) ? "int8" : "fp8_e4m3"));
  return ok_status();
}

// Finishes the graph of `b`, gives the graph's result `output` the name `name`, and merges the graph's weights into
// `weights`, the weights of the earlier graphs. Weights with the same name share memory, so their types and tensors
// must agree. Checks this, because families may declare any weights.
Result<ir::Graph> finish(LayerBuilder& b, ir::ValueId output, const char* name, std::vector<WeightSpec>& weights,
                         std::optional<ir::ValueId> further = std::nullopt) {
  b.graph.output(output);
  if (further) b.graph.output(*further);
  ir::Graph graph = TRY(b.graph.finish());
  graph.value(output).name = name;
  TRY(join_weights(graph.name, b.take_weights(), weights));
  return graph;
}

// Returns `stored`, the formats in which linears are stored. If `format` is given, the result also says that
// unquantised linears are quantised to `format` while they are read.
WeightFormats at_start(const WeightFormats& stored, const std::optional<StartFormat>& format) {
  return format ? stored.quantised_at_start(*format) : stored;
}

// Moves the descriptions of the linears' formats, which the builder has recorded, to `graphs`.
void take_notes(LayerBuilder& b, ModelGraphs& graphs) {
  std::ranges::move(b.take_stored(), std::back_inserter(graphs.stored));
  std::ranges::move(b.take_dequantised(), std::back_inserter(graphs.dequantised));
  std::ranges::move(b.take_at_start(), std::back_inserter(graphs.at_start));
}

// Returns whether drafts have a head of their own: a head with fewer ids, or a quantised copy of the model's head.
// There is no quantised copy if the model's head is quantised already, or if its rows cannot be quantised.
bool has_own_draft_head(const ModelConfig& config, const ModelOptions& options, const ir::Graph& head) {
  if (options.draft_vocab > 0) return true;
  if (!options.draft_format || !format_at_start(*options.draft_format, config.hidden_size)) return false;
  return std::ranges::find(head.nodes, "linear", &ir::Node::op) != head.nodes.end();
}

// Builds the next-token layer and the head of its drafts. Without a head of their own, drafts use the weights of the
// model's head.
Result<DraftGraphs> build_draft(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops,
                                const ModelFamily& family, ModelGraphs& graphs) {
  const WeightFormats formats = at_start(config.formats, options.draft_format);
  LayerBuilder b("draft", options, ops, config.tensor_prefix, formats);
  DraftGraphs draft;
  draft.body = TRY(finish(b, family.build_draft(b, with_draft_layer(config)), "hidden", graphs.weights));
  take_notes(b, graphs);
  draft.sampler = graphs.sampler;
  if (!has_own_draft_head(config, options, graphs.head)) {
    draft.head = graphs.head;
    draft.head.name = "draft_head";
    return draft;
  }
  LayerBuilder head("draft_head", options, ops, config.tensor_prefix, formats);
  const std::int64_t vocab = options.draft_vocab > 0 ? options.draft_vocab : config.num_logits();
  const ir::ValueId y = draft_logits(head, config, declare_head_inputs(head, config.hidden_size), vocab);
  draft.sampler = TRY(build_sampler(vocab, ops));
  draft.head = TRY(finish(head, y, "logits", graphs.weights));
  take_notes(head, graphs);
  return draft;
}

// Adds the next-token layer to the last stage. On every other stage, adds the layer's weights to weights_elsewhere,
// except the weights that the stage uses itself.
Status add_draft(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops,
                 const ModelFamily& family, ModelGraphs& graphs) {
  const auto before = static_cast<std::ptrdiff_t>(graphs.weights.size());
  DraftGraphs draft = TRY(build_draft(config, options, ops, family, graphs));
  const auto first = graphs.weights.begin() + before;
  const auto named_as = [](const WeightSpec& spec) {
    return [&spec](const WeightSpec& other) { return other.name == spec.name; };
  };
  if (graphs.has_head) {
    graphs.draft = std::move(draft);
    for (auto spec = first; spec != graphs.weights.end(); ++spec)
      std::erase_if(graphs.weights_elsewhere, named_as(*spec));
    return ok_status();
  }
  for (auto spec = first; spec != graphs.weights.end(); ++spec)
    if (std::ranges::none_of(graphs.weights_elsewhere, named_as(*spec)))
      graphs.weights_elsewhere.push_back(std::move(*spec));
  graphs.weights.erase(first, graphs.weights.end());
  return ok_status();
}

Result<DraftGraphs> build_eagle_draft(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops,
                                      ModelGraphs& graphs) {
  const EagleDraft& eagle = *options.eagle;
  const WeightFormats formats = at_start({}, options.draft_format);
  ModelOptions own = options;
  const std::size_t groups = graphs.body.cache_groups.size();
  const std::size_t group = full_group(graphs.body);
  if (graphs.body.cache_groups.size() > groups) {  // full_group() added a group; otherwise the layer uses an old one
    own.guest = {.groups = graphs.body.cache_groups, .group = group, .takes_embeddings = true};
    own.guest->groups[group].layers.push_back(eagle.config.num_hidden_layers - 1);
  }
  LayerBuilder layer("draft", own, ops, eagle.own_embedding ? std::string(kEaglePrefix) : config.tensor_prefix,
                     formats);
  DraftGraphs draft;
  draft.body_output = 1;
  draft.target_ids = eagle.target_ids;
  draft.body = TRY(finish(layer, build_eagle3_layer(layer, eagle, config), "hidden", graphs.weights));
  take_notes(layer, graphs);
  LayerBuilder head("draft_head", options, ops, config.tensor_prefix, formats);
  draft.head = TRY(finish(head, build_eagle3_head(head, eagle), "logits", graphs.weights));
  take_notes(head, graphs);
  draft.sampler = TRY(build_sampler(eagle.vocab_size, ops));
  return draft;
}

// Moves the weights that this stage does not use to weights_elsewhere.
void keep_own_weights(bool is_last, ModelGraphs& graphs) {
  const auto is_own = [&](const WeightSpec& spec) {
    return graphs.body.find_value(spec.name) != nullptr || (is_last && graphs.head.find_value(spec.name) != nullptr);
  };
  const auto others = std::stable_partition(graphs.weights.begin(), graphs.weights.end(), is_own);
  graphs.weights_elsewhere.assign(std::make_move_iterator(others), std::make_move_iterator(graphs.weights.end()));
  graphs.weights.erase(others, graphs.weights.end());
}

// Returns this stage's part of the body. Precondition: graphs.weights has only weights of the body.
Result<ir::Graph> stage_of(const ModelGraphs& graphs, const LayerBuilder& builder) {
  const auto is_constant = [&](std::string_view weight) {
    const auto spec = std::ranges::find(graphs.weights, weight, &WeightSpec::name);
    return spec != graphs.weights.end() && spec->parts.empty();
  };
  return take_stage(graphs.body, graphs.own_layers,
                    {.layer_starts = builder.layer_starts(), .is_constant = is_constant});
}

// Removes the linears that this stage does not have.
void keep_own_linears(ModelGraphs& graphs) {
  std::erase_if(graphs.linears,
                [&](const AdaptableLinear& linear) { return graphs.body.find_value(linear.weight) == nullptr; });
}

// Adds the head to the linears that adapters may change. A tied head has the embedding's matrix, but PEFT treats it as
// a separate module, "lm_head".
void add_head_linear(LayerBuilder& head, ModelGraphs& graphs) {
  for (AdaptableLinear& linear : head.take_linears()) {
    linear.modules[0].name = "lm_head";
    graphs.linears.push_back(std::move(linear));
  }
}

}  // namespace

Result<ModelGraphs> build_model(const ModelConfig& config, const ModelOptions& options, const ir::OpTable& ops,
                                const FamilyRegistry& families) {
  TRY(check_options(config, options));
  const ModelFamily* family = families.find(config.architecture);
  if (family == nullptr) {
    return unimplemented(fmt::format("architecture \"{}\"; accepted: {}", config.architecture, families.names()));
  }
  TRY(check_stages(config, *family, options.pp_size));
  if (options.dp_size > 1 && (family->make_body || family->change_body))
    return unimplemented(
        fmt::format("enable_dp_attention: {}, whose body is written as text or changed by its family, is not accepted",
                    family->architecture));
  if (options.eagle != nullptr && (family->make_body || family->change_body))
    return unimplemented(
        fmt::format("EAGLE-3 for {}, whose body is written as text or changed by its family, is not supported",
                    family->architecture));
  if (family->make_body && config.formats.at_start())
    return unimplemented(fmt::format("quantization: {}, whose body is written as text, is not quantised at the start",
                                     family->architecture));
  if (family->make_body && is_int8_cache(options.kv_cache_type()))
    return unimplemented(
        fmt::format("kv_cache_dtype: int8 for {}, whose body is written as text, is not supported; accepted: auto, "
                    "float32, bfloat16, float16, fp8_e4m3",
                    family->architecture));
  ModelGraphs graphs;
  graphs.dp_size = options.dp_size;
  graphs.own_layers = layers_of_stage(config.num_hidden_layers, options.pp_stage, options.pp_size);
  graphs.has_head = options.pp_stage + 1 == options.pp_size;
  if (family->make_body) {
    FamilyBody body =
        TRY(family->make_body(config, options, ops).with_context(fmt::format("the body of {}", family->architecture)));
    graphs.body = std::move(body.graph);
    graphs.weights = std::move(body.weights);
  } else {
    LayerBuilder body("body", options, ops, config.tensor_prefix, config.formats);
    const ir::ValueId hidden = family->build_body(body, config);
    graphs.linears = body.take_linears();  // taken before an EAGLE-3 draft adds its own linears to the body
    std::optional<ir::ValueId> fused;
    if (options.eagle != nullptr) fused = TRY(fuse_layer_inputs(body, *options.eagle));
    graphs.body = TRY(finish(body, hidden, "hidden", graphs.weights, fused));
    graphs.layers = body.take_layers();
    graphs.stored = body.take_stored();
    graphs.dequantised = body.take_dequantised();
    graphs.at_start = body.take_at_start();
    if (options.pp_size > 1) {
      graphs.body =
          TRY(stage_of(graphs, body)
                  .with_context(fmt::format("pp_size: {} stages of {}", options.pp_size, family->architecture)));
      keep_own_linears(graphs);
    }
  }
  if (family->change_body)
    graphs.body = TRY(family->change_body(std::move(graphs.body), ops)
                          .with_context(fmt::format("the body of {}", family->architecture)));
  LayerBuilder head("head", options, ops, config.tensor_prefix, at_start(config.formats, options.head_format));
  const ir::ValueId y =
      logits(head, config, declare_head_inputs(head, config.hidden_size), options.head_format.has_value());
  graphs.head = TRY(finish(head, y, "logits", graphs.weights));
  take_notes(head, graphs);
  if (graphs.has_head && config.num_labels == 0 && !family->make_body) add_head_linear(head, graphs);
  if (config.vision) {
    LayerBuilder tower("tower", options, ops, config.vision->tensor_prefix);
    const ir::ValueId rows = family->build_tower(tower, *config.vision);
    graphs.vision = VisionGraph{.graph = TRY(finish(tower, rows, "rows", graphs.weights)), .config = *config.vision};
  }
  if (options.pp_size > 1) keep_own_weights(graphs.has_head, graphs);
  if (family->tensor_name) {
    rename_tensors(family->tensor_name, graphs.weights);
    rename_tensors(family->tensor_name, graphs.weights_elsewhere);
  }
  graphs.sampler = TRY(build_sampler(config.num_logits(), ops));
  if (options.draft_layer) TRY(check_draft_layer(config, families));
  if (options.draft_layer) TRY(add_draft(config, options, ops, *family, graphs));
  if (options.eagle != nullptr) graphs.draft = TRY(build_eagle_draft(config, options, ops, graphs));
  if (options.draft_model != nullptr) graphs.draft = TRY(build_draft_model(options, ops, families, graphs));
  graphs.choose = TRY(build_choose(config.num_logits(), ops));
  graphs.logprobs = TRY(build_logprobs(config.num_logits(), ops));
  return graphs;
}

std::vector<const ir::Graph*> cached_graphs(const ModelGraphs& graphs) {
  std::vector<const ir::Graph*> cached{&graphs.body};
  if (graphs.draft) cached.push_back(&graphs.draft->body);
  return cached;
}

std::vector<WeightSpec> all_weights(const ModelGraphs& graphs) {
  std::vector<WeightSpec> weights = graphs.weights;
  weights.insert(weights.end(), graphs.weights_elsewhere.begin(), graphs.weights_elsewhere.end());
  return weights;
}

}  // namespace tessera
