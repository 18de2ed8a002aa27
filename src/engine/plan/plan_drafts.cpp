// The planning step that chooses where draft tokens come from, and the checks of the options for drafts.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/engine/drafts/draft_stats.h"
#include "tessera/engine/plan/draft_vocabulary.h"
#include "tessera/engine/plan/plan_steps.h"
#include "tessera/model/families/draft_model.h"
#include "tessera/model/families/eagle3.h"
#include "tessera/model/layers/draft.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {
namespace {

Status check_counts(const DraftOptions& drafts) {
  const auto check = [](std::string_view option, std::int64_t count) -> Status {
    if (count >= 1 && count <= kMostDrafts) return ok_status();
    return invalid_argument(fmt::format("{}: {} is not accepted; 1 to {} is", option, count, kMostDrafts));
  };
  TRY(check("speculative_num_draft_tokens", drafts.most_tokens));
  return check("speculative_num_steps", drafts.layer_steps);
}

Status check_quantization(const DraftOptions& drafts) {
  const std::string& asked = drafts.quantization;
  if (asked.empty()) return ok_status();
  if (!start_format_from_name(asked))
    return invalid_argument(fmt::format("speculative_draft_model_quantization: {} is not accepted; accepted: {}", asked,
                                        kStartFormatNames));
  if (drafts.by_layer()) return ok_status();
  return invalid_argument(fmt::format(
      "speculative_draft_model_quantization: {} is not accepted without a draft layer or model (speculative_algorithm "
      "MTP, AUTO, EAGLE3 or STANDALONE)",
      asked));
}

Status check_vocab_size(const DraftOptions& drafts) {
  if (drafts.vocab_size == 0 || (drafts.by_layer() && drafts.source != DraftSource::kEagle)) return ok_status();
  return invalid_argument(
      fmt::format("speculative_draft_vocab_size: {} is not accepted without a next-token layer or a draft model "
                  "(speculative_algorithm MTP, AUTO or STANDALONE)",
                  drafts.vocab_size));
}

// Returns the value of speculative_algorithm for a source that reads its layer or model from
// speculative_draft_model_path.
std::string_view algorithm_of(DraftSource source) { return source == DraftSource::kEagle ? "EAGLE3" : "STANDALONE"; }

// Refuses options that do not work together with the chosen source of drafts.
Status check_ways(const EngineOptions& options) {
  if (options.pp_size > 1 && options.drafts.from_folder())
    return unimplemented(
        fmt::format("speculative_algorithm: {} is not supported with a pipeline (pp_size); SUFFIX and MTP are",
                    algorithm_of(options.drafts.source)));
  if (options.dp_attention && options.drafts.by_layer())
    return unimplemented(
        "speculative_algorithm: drafts of a layer or a model are not supported with data-parallel attention "
        "(enable_dp_attention); SUFFIX is");
  return ok_status();
}

// Checks that the checkpoint has tensors of the next-token layer that its config names. Some tools drop these tensors
// but keep the config.
Status check_layer_tensors(PlanDraft& draft) {
  const std::shared_ptr<const Checkpoint> checkpoint = TRY(find_checkpoint(draft));
  if (checkpoint == nullptr) return ok_status();
  const ModelConfig& config = draft.plan.config;
  const std::string layer = fmt::format("{}layers.{}.", config.tensor_prefix, config.num_hidden_layers);
  const auto belongs = [&](std::string_view name) { return name.starts_with(layer) || name.starts_with("mtp."); };
  if (std::ranges::any_of(checkpoint->names(), belongs)) return ok_status();
  return not_found(fmt::format(
      "config.json has a next-token layer (MTP), but the checkpoint has none of its tensors, {}* or mtp.*", layer));
}

// Returns ok if the checkpoint has a next-token layer that can make drafts with these options. Otherwise returns an
// error that says why it cannot.
Status check_layer(PlanDraft& draft) {
  TRY(check_ways(draft.options));
  if (!draft.plan.generates()) return unimplemented("the model generates no tokens");
  TRY(check_draft_layer(draft.plan.config, draft.options.registry->families));
  return check_layer_tensors(draft);
}

// Chooses the source for AUTO: the checkpoint's next-token layer (MTP) if it can draft, otherwise no drafts.
void choose_automatically(PlanDraft& draft) {
  EnginePlan& plan = draft.plan;
  const Status layer = check_layer(draft);
  plan.drafts.source = layer.ok() ? DraftSource::kLayer : DraftSource::kNone;
  plan.facts.push_back(
      layer.ok()
          ? fmt::format("speculative_algorithm: AUTO drafts by the checkpoint's next-token layer, up to {} tokens in a "
                        "step, as long as kept drafts and measured costs say that it pays; NONE switches it off",
                        plan.drafts.layer_steps)
          : fmt::format("speculative_algorithm: AUTO decodes without drafts: {}", layer.message()));
}

// For a model with recurrent states and with a next-token layer or draft model: makes sure that a request gets no more
// drafts from its text than from that layer or draft model. A slot of a recurrent state holds one row for each draft of
// a step, so more drafts from the text would make every slot larger.
void limit_drafts_from_text(EnginePlan& plan) {
  DraftOptions& drafts = plan.drafts;
  if (!drafts.by_layer() || !plan.config.delta_net || drafts.most_tokens <= drafts.layer_steps) return;
  drafts.most_tokens = drafts.layer_steps;
  plan.facts.push_back(
      fmt::format("speculative_num_draft_tokens: {}, as speculative_num_steps, because each slot of a recurrent state "
                  "holds the rows of so many drafts",
                  drafts.most_tokens));
}

}  // namespace

std::string_view draft_source_name(DraftSource source) {
  switch (source) {
    case DraftSource::kNone: return "none";
    case DraftSource::kAuto: return "auto";
    case DraftSource::kText: return "suffix";
    case DraftSource::kLayer: return "mtp";
    case DraftSource::kEagle: return "eagle3";
    case DraftSource::kModel: return "standalone";
  }
  return "unknown";
}

Status check_draft_options(const EngineOptions& options) {
  const DraftOptions& drafts = options.drafts;
  TRY(check_counts(drafts));
  if (drafts.from_folder() && drafts.model_path.empty())
    return invalid_argument(
        fmt::format("speculative_algorithm: {} needs speculative_draft_model_path, the draft's folder",
                    algorithm_of(drafts.source)));
  if (!drafts.from_folder() && !drafts.model_path.empty())
    return invalid_argument(fmt::format(
        "speculative_draft_model_path: {} is not accepted without speculative_algorithm EAGLE3 or STANDALONE",
        drafts.model_path));
  TRY(check_quantization(drafts));
  TRY(check_vocab_size(drafts));
  if (!drafts.any()) return ok_status();
  const auto most = static_cast<double>(drafts.most() + 1);
  if (drafts.forced_tokens != 0 && !(drafts.forced_tokens >= 1 && drafts.forced_tokens <= most))
    return invalid_argument(
        fmt::format("speculative_forced_tokens: {:g} is not accepted; 1 to {:g} is, the drafts of a step and one",
                    drafts.forced_tokens, most));
  return drafts.source == DraftSource::kAuto ? ok_status() : check_ways(options);
}

Status choose_drafts(PlanDraft& draft) {
  draft.plan.drafts = draft.options.drafts;
  if (draft.plan.drafts.source == DraftSource::kAuto) choose_automatically(draft);
  if (draft.options.drafts.source == DraftSource::kLayer &&
      check_draft_layer(draft.plan.config, draft.options.registry->families).ok())
    TRY(check_layer_tensors(draft).with_context("speculative_algorithm: MTP"));
  if (const std::int64_t ids = draft.plan.drafts.vocab_size; ids > draft.plan.config.vocab_size)
    return invalid_argument(
        fmt::format("speculative_draft_vocab_size: {} is not accepted; 1 to {}, the model's number of ids, is", ids,
                    draft.plan.config.vocab_size));
  limit_drafts_from_text(draft.plan);
  return ok_status();
}

Status read_draft_folder(PlanDraft& draft) {
  const EngineOptions& options = draft.options;
  EnginePlan& plan = draft.plan;
  const bool reads_weights = options.load_format != LoadFormat::kDummy;
  const std::string& folder = plan.drafts.model_path;
  if (plan.drafts.source == DraftSource::kEagle)
    plan.model.eagle = std::make_shared<const EagleDraft>(
        TRY(read_eagle3(folder, plan.config, options.registry->families, reads_weights)));
  if (plan.drafts.source != DraftSource::kModel) return ok_status();
  plan.model.draft_model = std::make_shared<const DraftModel>(
      TRY(read_draft_model(folder, plan.config, options.registry->families, reads_weights)));
  const ModelConfig& config = plan.model.draft_model->config;
  TRY(check_draft_vocabulary(options, folder, plan.config.vocab_size, config.vocab_size).with_context(folder));
  if (config.max_position_embeddings < plan.runner.context_length)
    plan.notes.push_back(
        fmt::format("the draft model has {} positions and the context {}: behind them fewer drafts are kept",
                    config.max_position_embeddings, plan.runner.context_length));
  return ok_status();
}

void note_draft_head(EnginePlan& plan) {
  const auto is_of_drafts = [](const WeightSpec& weight) { return weight.name.starts_with("draft_head"); };
  if (plan.drafts.source != DraftSource::kLayer || !plan.model.draft_format ||
      std::ranges::any_of(plan.graphs.weights, is_of_drafts))
    return;
  plan.facts.push_back(
      fmt::format("speculative_draft_model_quantization: drafts use the model's own head, which is stored quantised or "
                  "has rows that {} does not take",
                  plan.drafts.quantization));
}

}  // namespace tessera
