// Checks those options of a plan that can be checked without a model.
#include <fmt/format.h>

#include "tessera/engine/plan/plan_steps.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

Status zero_or_more(std::int64_t value, std::string_view option) {
  if (value >= 0) return ok_status();
  return invalid_argument(fmt::format("{}: {} is not accepted; 0 or more is", option, value));
}

Status check_chunk(std::int64_t chunk) {
  if (chunk != kWholePrompts) TRY(zero_or_more(chunk, "chunked_prefill_size"));
  if (chunk <= kMaxLadderSize) return ok_status();
  return invalid_argument(
      fmt::format("chunked_prefill_size: {} is not accepted; at most {} is", chunk, kMaxLadderSize));
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
