// Checks those options of a plan that need no model.
#include <fmt/format.h>

#include "tessera/engine/ranks/rank_places.h"
#include "tessera/engine/start/plan_steps.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostDrafts = 64;  // most drafts of a request in a step

Status zero_or_more(std::int64_t value, std::string_view option) {
  if (value >= 0) return ok_status();
  return invalid_argument(fmt::format("{}: {} is not accepted; 1 or more is", option, value));
}

Status check_chunk(std::int64_t chunk) {
  if (chunk != kWholePrompts) TRY(zero_or_more(chunk, "chunked_prefill_size"));
  if (chunk <= kMaxLadderSize) return ok_status();
  return invalid_argument(
      fmt::format("chunked_prefill_size: {} is not accepted; at most {} is", chunk, kMaxLadderSize));
}

Status check_draft_options(const EngineOptions& options) {
  if (options.drafts.most_tokens < 1 || options.drafts.most_tokens > kMostDrafts)
    return invalid_argument(fmt::format("speculative_num_draft_tokens: {} is not accepted; 1 to {} is",
                                        options.drafts.most_tokens, kMostDrafts));
  if (options.drafts.layer_steps < 1 || options.drafts.layer_steps > kMostDrafts)
    return invalid_argument(
        fmt::format("speculative_num_steps: {} is not accepted; 1 to {} is", options.drafts.layer_steps, kMostDrafts));
  if (options.drafts.source == DraftSource::kEagle && options.drafts.eagle_path.empty())
    return invalid_argument("speculative_algorithm: EAGLE3 needs speculative_draft_model_path, the draft's folder");
  if (options.drafts.source != DraftSource::kEagle && !options.drafts.eagle_path.empty())
    return invalid_argument(
        fmt::format("speculative_draft_model_path: {} is not accepted without speculative_algorithm EAGLE3",
                    options.drafts.eagle_path));
  if (!options.drafts.any()) return ok_status();
  const double forced = options.drafts.forced_tokens;
  const auto most = static_cast<double>(options.drafts.most() + 1);
  if (forced != 0 && !(forced >= 1 && forced <= most))
    return invalid_argument(fmt::format(
        "speculative_forced_tokens: {:g} is not accepted; 1 to {:g} is, the drafts of a step and one", forced, most));
  if (options.pp_size > 1) return unimplemented("speculative_algorithm: a pipeline (pp_size) is not supported with it");
  if (options.dp_attention)
    return unimplemented(
        "speculative_algorithm: data-parallel attention (enable_dp_attention) is not supported with it");
  return ok_status();
}

}  // namespace

Status check_values(PlanDraft& draft) {
  const EngineOptions& options = draft.options;
  TRY(check_ranks(options));
  TRY(zero_or_more(options.context_length, "context_length"));
  TRY(check_chunk(options.chunked_prefill_size));
  TRY(zero_or_more(options.max_running_requests, "max_running_requests"));
  TRY(zero_or_more(options.max_queued_requests, "max_queued_requests"));
  TRY(zero_or_more(options.max_total_tokens, "max_total_tokens"));
  TRY(zero_or_more(options.image_cache_bytes, "image_cache_bytes"));
  if (options.page_size < 1 || options.page_size > 1024)
    return invalid_argument(fmt::format("page_size: {} is not accepted; 1 to 1024 is", options.page_size));
  if (options.two_batch_least_tokens < 2)
    return invalid_argument(
        fmt::format("two_batch_least_tokens: {} is not accepted; at least 2 is", options.two_batch_least_tokens));
  return check_draft_options(options);
}

}  // namespace tessera
