// The steps of a plan that read the model's config and make its graphs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/timeline.h"
#include "tessera/engine/plan/plan_steps.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/model/families/draft_model.h"
#include "tessera/model/families/eagle3.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/layers/cache.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/net/frame.h"
#include "tessera/ops/cache/cache_type.h"
#include "tessera/ops/quantised/blocks/block_codes.h"
#include "tessera/ops/quantised/blocks/dequantise.h"
#include "tessera/runner/adapters/adapted_graphs.h"
#include "tessera/runner/graphs/make_executable.h"
#include "tessera/runner/wanted_rows.h"

namespace tessera {
namespace {

// Decides whether the model is an embedding model. A classifier is not an embedding model, even if its folder has files
// of an embedding model, so it keeps its own head. An embedding model's head is never computed, and most checkpoints of
// embedding models have no head. So no head is read, and the matrix of embeddings stands in its place.
Status plan_embedding(const EngineOptions& options, EnginePlan& plan) {
  if (plan.config.num_labels > 0) return ok_status();
  if (const std::optional<std::string> gguf = TRY(find_gguf(options.model_path))) {
    plan.embedding = TRY(gguf_embedding_config(TRY(GgufModel::open(*gguf, gguf_options(options)))));
  } else {
    plan.embedding = TRY(EmbeddingConfig::read(model_folder(options.model_path), plan.config.hidden_size));
  }
  if (!plan.embedding && options.is_embedding) plan.embedding = EmbeddingConfig();
  if (plan.embedding) plan.config.tie_word_embeddings = true;
  return ok_status();
}

// Adds a note if all prompts get LongRoPE's long rotation factors, which change the outputs for short prompts.
void note_longrope(EnginePlan& plan) {
  const RopeConfig& rope = plan.config.rope;
  const std::int64_t short_context = rope.original_max_position_embeddings;
  if (rope.type != RopeType::kLongRope || plan.runner.context_length <= short_context) return;
  plan.notes.push_back(fmt::format(
      "context length {}: LongRoPE rotates all prompts by its long factors; at most {} takes the short ones",
      plan.runner.context_length, short_context));
}

// Counts modules, and keeps the name of the first one.
struct ModuleCount {
  std::int64_t count = 0;
  std::string first;

  void add(const std::string& module) {
    if (++count == 1) first = module;
  }
};

// Adds a fact that says how many of the checkpoint's linears are stored in which quantised format.
void tell_stored(EnginePlan& plan) {
  std::map<std::string, ModuleCount> formats;
  ModuleCount unquantised;
  for (const StoredMatrix& matrix : plan.graphs.stored)
    (matrix.unquantised ? unquantised : formats[matrix.format]).add(matrix.module);
  if (formats.empty()) return;
  std::vector<std::string> parts;
  for (const auto& [format, modules] : formats)
    parts.push_back(fmt::format("{} matrices as {}, {} first", modules.count, format, modules.first));
  std::string fact = fmt::format("quantised in the checkpoint: {}", fmt::join(parts, "; "));
  if (unquantised.count > 0)
    fact += fmt::format("; {} are stored as numbers, {} first", unquantised.count, unquantised.first);
  plan.facts.push_back(std::move(fact));
}

// Adds notes on which quantised weights are dequantised, and why: one for each format and reason.
void note_dequantised(EnginePlan& plan) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> modules;
  for (const DequantisedWeight& weight : plan.graphs.dequantised)
    modules[{weight.format, weight.reason}].push_back(weight.module);
  for (const auto& [why, names] : modules)
    plan.notes.push_back(fmt::format("{} matrices of {} are kept as {}, {} first, because {}", names.size(), why.first,
                                     ir::dtype_name(plan.model.weight_type()), names[0], why.second));
}

// Adds a note on the tensors of a GGUF file whose quantised blocks are dequantised.
void note_blocks(EnginePlan& plan) {
  std::set<std::string> kept;
  for (const StoredMatrix& matrix : plan.graphs.stored)
    if (!matrix.unquantised) kept.insert(matrix.module + ".weight");
  std::map<std::string_view, ModuleCount> types;
  for (const std::string_view name : plan.checkpoint->names()) {
    const StoredTensor& tensor = *plan.checkpoint->find(name);
    if (tensor.blocks && tensor.dtype == StoredDtype::kF32 && !kept.contains(std::string(name)))
      types[block_type_info(*tensor.blocks).name].add(std::string(name));
  }
  if (types.empty()) return;
  std::vector<std::string> parts;
  for (const auto& [type, tensors] : types)
    parts.push_back(fmt::format("{} tensors of {}, {} first", tensors.count, type, tensors.first));
  plan.notes.push_back(fmt::format("dequantised: {}; they are kept as {}", fmt::join(parts, "; "),
                                   ir::dtype_name(plan.model.weight_type())));
}

// Adds a note on what the start quantised, and on what it did not quantise and why.
void note_at_start(EnginePlan& plan) {
  if (plan.graphs.at_start.empty()) return;
  std::map<std::string, ModuleCount> rounded;
  std::map<std::string, ModuleCount> left;
  for (const WeightAtStart& weight : plan.graphs.at_start) {
    (weight.format.empty() ? left[weight.reason] : rounded[weight.format]).add(weight.module);
  }
  std::vector<std::string> formats;
  for (const auto& [format, modules] : rounded)
    formats.push_back(fmt::format("{} matrices as {}", modules.count, format));
  std::string note = fmt::format("quantised at the start: {}", fmt::join(formats, ", "));
  for (const auto& [reason, modules] : left)
    note += fmt::format("; {} stay {}, {} first, because {}", modules.count, ir::dtype_name(plan.model.weight_type()),
                        modules.first, reason);
  plan.notes.push_back(std::move(note));
}

// Adds a note that says where the scales of an FP8 cache come from, or that the checkpoint's scales are not used.
void note_cache_scales(EnginePlan& plan) {
  const std::optional<KvCacheFormat> stored = plan.config.formats.kv_cache();
  if (has_cache_scales(plan.model.kv_cache_type())) {
    const CacheScaleCounts counts = count_cache_scales(all_weights(plan.graphs));
    plan.notes.push_back(
        fmt::format("keys and values are kept as FP8 (E4M3); {} of their {} scales are the checkpoint's, the others 1",
                    counts.read, counts.read + counts.ones));
  } else if (stored && stored->scales) {
    plan.notes.push_back(fmt::format(
        "the checkpoint is meant for a KV cache of {}; the cache is {}, and scales of keys and values are unused",
        stored->dtype, cache_type_name(plan.model.kv_cache_type())));
  }
}

// Opens the checkpoint, and lets the model look up tensors in its headers.
Status ask_stored_types(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  plan.checkpoint = TRY(open_checkpoint(draft));
  plan.model.stored_type = [checkpoint = plan.checkpoint](std::string_view tensor) -> std::optional<StoredDtype> {
    const StoredTensor* stored = checkpoint->find(tensor);
    return stored != nullptr ? std::optional(stored->dtype) : std::nullopt;
  };
  return ok_status();
}

// Lets the model keep the quantised blocks of a GGUF file where operators take them. On a CPU, operators take whole
// blocks. They also round their inputs, as the file's authors expect, unless the option dtype is float32. On Hopper,
// kernels take the blocks' integers and scales as separate matrices, and round weights to 16 bits. On other GPUs, and
// for models in float32 on any GPU, the blocks are dequantised.
void keep_blocks(PlanDraft& draft) {
  ModelOptions& model = draft.plan.model;
  const bool on_host = draft.properties().on_host;
  const bool on_hopper = draft.properties().compute_capability / 10 == 9;
  if (!on_host && (!on_hopper || model.dtype == ir::DType::kFloat32)) return;
  model.round_block_inputs = on_host && draft.options.dtype != "float32";
  model.block_codes = !on_host;
  model.stored_blocks = [checkpoint = draft.plan.checkpoint,
                         on_host](std::string_view name) -> std::optional<BlockType> {
    const StoredTensor* stored = checkpoint->find(name);
    if (stored == nullptr || !stored->blocks || stored->made == nullptr || stored->shape.size() != 2)
      return std::nullopt;
    const bool taken = on_host ? can_dequantise(*stored->blocks) : block_codes_format(*stored->blocks) != nullptr;
    return taken && stored->made->has_blocks() ? stored->blocks : std::nullopt;
  };
}

// Counts the parameters of all stages. Counts the parameters of a draft layer or draft model from another folder
// separately.
void count_parameters(EnginePlan& plan) {
  std::vector<WeightSpec> weights = all_weights(plan.graphs);
  const auto is_draft = [&](const WeightSpec& weight) {
    const std::vector<WeightPart>& parts = weight.parts.empty() ? weight.elsewhere : weight.parts;
    if (parts.empty()) return false;
    if (plan.model.draft_model != nullptr) return parts.front().tensor.starts_with(kDraftModelPrefix);
    return plan.model.eagle != nullptr && parts.front().tensor.starts_with(kEaglePrefix);
  };
  const auto drafts = std::ranges::stable_partition(weights, std::not_fn(is_draft));
  plan.parameters = parameter_count(std::span(weights.begin(), drafts.begin()));
  plan.draft_parameters = parameter_count(drafts);
}

// Refuses a load format that is not the format of the model's files.
Status check_load_format(const EngineOptions& options, bool gguf) {
  const LoadFormat asked = options.load_format;
  if (asked == LoadFormat::kGguf && !gguf)
    return invalid_argument(
        fmt::format("load_format: gguf is asked for, but {} is no GGUF file; accepted: auto, safetensors and dummy",
                    options.model_path));
  if (asked == LoadFormat::kSafetensors && gguf)
    return invalid_argument(
        fmt::format("load_format: safetensors is asked for, but {} is a GGUF file; accepted: auto, gguf and dummy",
                    options.model_path));
  return ok_status();
}

// Refuses a projector for a model that is no GGUF file. Adds a fact that names the projector if one is used.
Status check_projector_use(PlanDraft& draft) {
  const std::string& projector = draft.options.projector_path;
  if (projector.empty()) return ok_status();
  if (!draft.gguf)
    return invalid_argument(
        fmt::format("mmproj: {} is a projector for a model in GGUF files, but {} is none; accepted: no projector",
                    projector, draft.options.model_path));
  draft.plan.facts.push_back(fmt::format("vision tower: {}", projector));
  return ok_status();
}

// Refuses values for metadata if the model is no GGUF file, and two values for one key. Adds a fact for each value.
Status check_overrides(PlanDraft& draft) {
  const std::vector<GgufOverride>& overrides = draft.options.metadata_overrides;
  if (overrides.empty()) return ok_status();
  const std::optional<std::string> gguf = TRY(find_gguf(draft.options.model_path));
  if (!gguf)
    return invalid_argument(fmt::format("override_kv: {} is set, but {} is no GGUF file; accepted: no values",
                                        overrides.front().key, draft.options.model_path));
  const GgufModel file = TRY(GgufModel::open(*gguf));
  const GgufModel model = TRY(GgufModel::open(*gguf, gguf_options(draft.options)));
  for (const GgufOverride& given : overrides) {
    if (std::ranges::count(overrides, given.key, &GgufOverride::key) > 1)
      return invalid_argument(fmt::format("override_kv: {} is given twice; accepted: once", given.key));
    const GgufValue* before = file.find(given.key);
    draft.plan.facts.push_back(fmt::format("metadata {} is {}; the file has {}", given.key,
                                           model.find(given.key)->shown(),
                                           before != nullptr ? before->shown() : "none"));
  }
  return ok_status();
}

}  // namespace

Status read_config(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  draft.gguf = TRY(find_gguf(draft.options.model_path)).has_value();
  TRY(check_load_format(draft.options, draft.gguf));
  TRY(check_projector_use(draft));
  TRY(check_overrides(draft));
  const Timeline::Clock::time_point reading = Timeline::Clock::now();
  plan.config =
      TRY(ModelConfig::read(draft.options.model_path, draft.options.registry->families, gguf_options(draft.options)));
  TRY(apply_quantization(draft));
  TRY(plan_embedding(draft.options, plan));
  plan.config_s = std::chrono::duration<double>(Timeline::Clock::now() - reading).count();
  return ok_status();
}

Status build_graphs(PlanDraft& draft) {
  const EngineOptions& options = draft.options;
  EnginePlan& plan = draft.plan;
  const RunnerOptions& runner = plan.runner;
  plan.model.page_size = runner.page_size;
  plan.model.max_requests = runner.max_requests;
  plan.model.max_embeddings = std::max({runner.context_length, runner.max_tokens, runner.embedding_rows});
  plan.model.context_length = runner.context_length;
  plan.model.draft_layer = plan.drafts.source == DraftSource::kLayer;
  TRY(read_draft_folder(draft).with_context("speculative_draft_model_path"));
  if (plan.drafts.by_layer()) plan.model.draft_format = start_format_from_name(plan.drafts.quantization);
  TRY(choose_head_format(draft));
  if (plan.drafts.vocab_size < plan.config.vocab_size) plan.model.draft_vocab = plan.drafts.vocab_size;
  plan.model.max_drafts = plan.runner.max_drafts = plan.drafts.any() ? plan.drafts.most() : 0;
  plan.model.max_draft_rows = std::max(runner.max_tokens, runner.max_requests);
  place_rank(options, draft.rank, plan.model);
  plan.runner.place = exchange_place(options, draft.rank);
  note_longrope(plan);
  const bool asks_types = plan.config.formats.any() || has_cache_scales(plan.model.kv_cache_type()) || draft.gguf;
  if (asks_types && options.load_format != LoadFormat::kDummy) {
    TRY(ask_stored_types(draft));
    if (draft.gguf) keep_blocks(draft);
  }
  Result<ModelGraphs> graphs = build_model(plan.config, plan.model, options.registry->ops, options.registry->families);
  if (options.tp_size > 1) graphs = std::move(graphs).with_context(fmt::format("tp_size: {}", options.tp_size));
  plan.graphs = TRY(std::move(graphs).with_context(options.model_path));
  TRY(check_quantised_head(draft));
  count_parameters(plan);
  tell_stored(plan);
  note_dequantised(plan);
  note_at_start(plan);
  note_draft_head(plan);
  note_cache_scales(plan);
  if (plan.checkpoint != nullptr) note_blocks(plan);
  return ok_status();
}

Status rewrite_graphs(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  const std::vector<std::string>& disabled = draft.options.graphs.disabled_passes;
  const Registry& registry = *draft.options.registry;
  TRY(check_pass_names(disabled, registry.passes).with_context("cuda_graph_disable_passes"));
  std::vector<ir::Graph*> graphs{&plan.graphs.body, &plan.graphs.head, &plan.graphs.sampler};
  if (plan.graphs.draft)
    graphs.insert(graphs.end(), {&plan.graphs.draft->body, &plan.graphs.draft->head, &plan.graphs.draft->sampler});
  for (ir::Graph* graph : graphs) {
    PassRun run = TRY(run_passes(std::move(*graph), registry.ops, {.disabled = disabled}, registry.passes));
    *graph = std::move(run.graph);
    plan.passes.insert(plan.passes.end(), run.reports.begin(), run.reports.end());
  }
  return ok_status();
}

// Lets prefill compute the body's last nodes only for the wanted rows, whose logits are needed. Does nothing in four
// cases. Embedding models and plans with a draft layer or draft model need all rows. A pipeline stage without a head
// wants no rows. With dp_attention the ranks share forwards but want different rows.
Status add_wanted_rows(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  if (plan.embedding || !plan.graphs.has_head || plan.graphs.dp_size > 1 || plan.graphs.draft) return ok_status();
  plan.graphs.prefill = TRY(end_with_wanted_rows(plan.graphs.body, plan.graphs.head, plan.runner.registry->ops,
                                                 *TRY(kernels_of(plan.runner, draft.device))));
  return ok_status();
}

namespace {

// Refuses options that do not work with adapters. The error names the option.
Status check_adapters(const EngineOptions& options) {
  const auto refuse = [](std::string_view option) {
    return unimplemented(fmt::format("enable_lora: {} is not supported with adapters", option));
  };
  if (options.dp_attention) return refuse("enable_dp_attention");
  if (options.two_batch_overlap) return refuse("enable_two_batch_overlap");
  return ok_status();
}

// Checks that a message can carry the largest adapter to the ranks of other nodes.
Status check_messages(const EngineOptions& options, const AdapterLayout& layout) {
  if (options.nnodes == 1) return ok_status();
  constexpr std::int64_t kMost = static_cast<std::int64_t>(kMostFrameBytes) - (std::int64_t{16} << 20);  // for padding
  std::int64_t bytes = 0;
  for (std::size_t rank = 1; rank < layout.num_ranks(); ++rank) bytes += layout.most_share_bytes(rank);
  if (bytes <= kMost) return ok_status();
  return invalid_argument(fmt::format(
      "lora_modules_to_save, max_lora_rank: an adapter may take {} bytes on ranks 1 to {}; at most {} are accepted, "
      "because one message carries them to other nodes. A lower rank takes less, and so do fewer modules",
      bytes, layout.num_ranks() - 1, kMost));
}

// Returns the linears of every rank. When an adapter is loaded, its matrices are cut into the parts for these linears.
Result<AdapterLayout::OfRanks> linears_of_ranks(PlanDraft& draft) {
  const Registry& registry = *draft.options.registry;
  AdapterLayout::OfRanks linears;
  for (int rank = 0; rank < layout_of(draft.options).ranks(); ++rank) {
    if (rank == draft.rank) {
      linears.push_back(draft.plan.graphs.linears);
      continue;
    }
    ModelOptions model = draft.plan.model;
    place_rank(draft.options, rank, model);
    linears.push_back(TRY(build_model(draft.plan.config, model, registry.ops, registry.families)).linears);
  }
  return linears;
}

}  // namespace

Status add_adapters(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  const AdapterOptions& options = draft.options.adapters;
  if (!options.enabled) return ok_status();
  TRY(check_adapters(draft.options));
  AdapterLayout layout = TRY(AdapterLayout::create(TRY(linears_of_ranks(draft)), static_cast<std::size_t>(draft.rank),
                                                   options.limits, plan.model.dtype));
  TRY(check_messages(draft.options, layout));
  const std::string saved =
      options.limits.saved.empty() ? "" : fmt::format(", whole matrices of {}", fmt::join(options.limits.saved, ", "));
  plan.facts.push_back(fmt::format("adapters: {} slots of rank {} for {} linears ({}){}", options.limits.slots,
                                   options.limits.max_rank, layout.linears().size(), layout.target_names(), saved));
  plan.graphs.adapted = TRY(adapt_graphs(plan.graphs, std::move(layout), plan.runner.registry->ops));
  return ok_status();
}

}  // namespace tessera
