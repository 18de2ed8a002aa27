#include "tessera/options/explanation.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "tessera/engine/plan/profile_store.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/engine_rank.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/options/option_words.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

std::vector<std::int64_t> full_sizes(const EngineOptions& options, const EnginePlan& plan, const Device& device) {
  if (!plan.runner.choose_full) return {};
  const CostTable costs = ProfileStore(options, plan, device.properties()).load_costs();
  std::vector<std::int64_t> sizes = plan.runner.prefill_sizes;
  std::erase_if(sizes, [&](std::int64_t size) { return !costs.full_wins(size); });
  return sizes;
}

std::vector<DispatchExample> examples_for(const RunnerOptions& runner, const std::vector<std::int64_t>& full,
                                          std::int64_t num_tokens) {
  const DispatchTable table{.graphs_enabled = runner.graphs.prefill || runner.graphs.decode,
                            .prefill_enabled = runner.graphs.prefill,
                            .decode_enabled = runner.graphs.decode,
                            .decode_padding = runner.decode_padding,
                            .prefill_sizes = runner.prefill_sizes,
                            .decode_sizes = runner.decode_sizes,
                            .full_sizes = full};
  // A prefill of one token has the same BatchShape as a decode step, so `decodes` is true for one token.
  const BatchShape prefill{.tokens = num_tokens,
                           .requests = 1,
                           .decodes = num_tokens == 1,
                           .all_rows_wanted = num_tokens == 1,
                           .several_rows_each = num_tokens > 1,
                           .force_eager = false};
  const BatchShape decode{.tokens = num_tokens, .requests = num_tokens, .decodes = true, .all_rows_wanted = true};
  return {{"prefill", num_tokens, dispatch(prefill, table)}, {"decode", num_tokens, dispatch(decode, table)}};
}

// Returns the example for an image of `tokens` tokens. Returns nothing if the model reads no images, or accepts no
// image of this size.
std::optional<ImageExample> image_example(const EnginePlan& plan, std::int64_t tokens) {
  if (!plan.graphs.vision) return std::nullopt;
  const VisionOptions& options = plan.runner.vision;
  const std::int64_t patches = tokens * plan.graphs.vision->config.merged_patches();
  if (patches > options.max_patches) return std::nullopt;
  if (options.exact_graphs > 0)
    return ImageExample{tokens, patches, {.size = patches, .graph = true, .reason = VisionReason::kFirstUse}};
  const CostTable unmeasured;
  return ImageExample{tokens, patches,
                      choose_budget({.sizes = options.sizes,
                                     .captured = options.sizes,
                                     .costs = unmeasured,
                                     .step = plan.graphs.vision->config.merged_patches(),
                                     .enabled = options.graphs},
                                    patches)};
}

Result<std::optional<ExplainedDraftLayer>> draft_layer_of(const ModelGraphs& graphs) {
  if (!graphs.draft) return std::optional<ExplainedDraftLayer>();
  const DraftGraphs& draft = *graphs.draft;
  const ir::Type& logits = draft.head.value(draft.head.outputs[0]).type;
  const ir::Type& hidden = draft.body.find_value(input_names::kDraftHidden)->type;
  const std::int64_t hidden_bytes = TRY(ir::size_bytes(hidden, {}));
  ExplainedDraftLayer layer{.layer_ops = std::ssize(draft.body.nodes),
                            .head_ops = std::ssize(draft.head.nodes) + std::ssize(draft.sampler.nodes),
                            .head_ids = *logits.shape.back().constant(),
                            .hidden_rows = *hidden.shape[0].constant(),
                            .hidden_bytes = hidden_bytes};
  const auto reads = [](const ir::Graph& graph, const WeightSpec& weight) {
    return graph.find_value(weight.name) != nullptr;
  };
  for (const WeightSpec& weight : graphs.weights)
    if ((reads(draft.body, weight) || reads(draft.head, weight)) && !reads(graphs.body, weight) &&
        !reads(graphs.head, weight))
      layer.own_bytes += TRY(ir::size_bytes(weight.type, {}));
  return std::optional(layer);
}

Result<std::vector<ExplainedTensor>> gguf_tensors(const EngineOptions& options) {
  std::vector<ExplainedTensor> tensors;
  const std::optional<std::string> gguf = TRY(find_gguf(options.model_path));
  if (!gguf) return tensors;
  const GgufModel model = TRY(GgufModel::open(*gguf));
  for (const GgufFile& file : model.files())
    for (const GgufTensor& tensor : file.tensors())
      tensors.push_back({.name = tensor.name,
                         .type = std::string(block_type_info(tensor.type).name),
                         .shape = tensor.shape,
                         .bytes = std::ssize(tensor.data)});
  return tensors;
}

}  // namespace

Result<Explanation> explain(const EngineOptions& options, std::optional<std::int64_t> num_tokens,
                            std::span<const FlagValue> flags) {
  const std::unique_ptr<Device> device = TRY(open_device(options));
  Explanation e;
  e.model_path = options.model_path;
  e.device = options.device;
  EngineOptions known = options;
  e.plan = TRY(plan_as_ranks(known, *device));
  const ModelGraphs& graphs = e.plan.graphs;
  e.stitching = TRY(split_graph(graphs.prefill_body(), options.registry->ops, e.plan.runner.split_ops));
  e.decode_ops = std::ssize(graphs.body.nodes) + std::ssize(graphs.head.nodes) + std::ssize(graphs.sampler.nodes);
  for (const WeightSpec& weight : graphs.weights) e.weight_bytes += TRY(ir::size_bytes(weight.type, {}));
  e.tensors = TRY(gguf_tensors(options));
  e.draft_layer = TRY(draft_layer_of(graphs));
  e.memory = TRY(predict_memory(graphs, e.plan.runner, *device, PredictionDetail::kEverySize));
  for (std::vector<std::string>* notes : {&e.plan.notes, &e.stitching.notes})
    for (std::string& note : *notes) note = with_flags(note, flags);
  e.full_sizes = full_sizes(known, e.plan, *device);
  e.schedules = TRY(explained_schedules(known, e.plan, *device));
  if (!num_tokens) return e;
  e.examples = examples_for(e.plan.runner, e.full_sizes, *num_tokens);
  e.image = image_example(e.plan, *num_tokens);
  return e;
}

bool rule_applied(const Explanation& explanation, const Rule& rule) {
  const std::vector<std::string>& messages = explanation.plan.runner.graphs.messages;
  return std::any_of(messages.begin(), messages.end(),
                     [&](const std::string& message) { return message.starts_with(rule.message); });
}

}  // namespace tessera
