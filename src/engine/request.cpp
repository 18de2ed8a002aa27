#include "tessera/engine/request.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {
namespace {

// Checks that a value is in range; NaN never is.
Status in_range(std::string_view field, double value, double least, double most) {
  const bool accepted = value >= least && value <= most;
  if (accepted) return ok_status();
  return invalid_argument(fmt::format("{} is {}; accepted is {} to {}", field, value, least, most));
}

Status check_logprobs(std::string_view field, const std::optional<int>& count) {
  if (!count || (*count >= 0 && *count <= kMaxTopLogprobs)) return ok_status();
  return invalid_argument(fmt::format("{} is {}; accepted is 0 to {}", field, *count, kMaxTopLogprobs));
}

}  // namespace

Status check_sampling(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return invalid_argument(fmt::format("temperature is {}; accepted is 0 (greedy) or more", params.temperature));
  }
  if (params.top_k < 0) return invalid_argument(fmt::format("top_k is {}; accepted is 0 (all) or more", params.top_k));
  const bool top_p_accepted = params.top_p > 0 && params.top_p <= 1;  // false for NaN
  if (!top_p_accepted) {
    return invalid_argument(fmt::format("top_p is {}; accepted is more than 0 and at most 1", params.top_p));
  }
  TRY(in_range("min_p", params.min_p, 0, 1));
  const bool repetition_accepted = params.repetition_penalty > 0 && params.repetition_penalty <= 10;
  if (!repetition_accepted) {
    return invalid_argument(
        fmt::format("repetition_penalty is {}; accepted is more than 0 and at most 10", params.repetition_penalty));
  }
  TRY(in_range("frequency_penalty", params.frequency_penalty, -2, 2));
  TRY(in_range("presence_penalty", params.presence_penalty, -2, 2));
  if (params.logit_bias.size() > kMaxLogitBias) {
    return invalid_argument(
        fmt::format("logit_bias has {} tokens; at most {} are accepted", params.logit_bias.size(), kMaxLogitBias));
  }
  for (const auto& [token, bias] : params.logit_bias)
    TRY(in_range(fmt::format("logit_bias of token {}", token.value()), bias, -100, 100));
  if (params.bad_words.size() > kMaxBadWords) {
    return invalid_argument(fmt::format("bad_words has {} sequences of tokens; at most {} are accepted",
                                        params.bad_words.size(), kMaxBadWords));
  }
  for (const std::vector<TokenId>& word : params.bad_words) {
    if (word.empty() || word.size() > kMaxBadWordTokens) {
      return invalid_argument(
          fmt::format("a sequence of bad_words has {} tokens; accepted is 1 to {}", word.size(), kMaxBadWordTokens));
    }
  }
  if (params.choice < 0) return invalid_argument(fmt::format("choice is {}; accepted is 0 or more", params.choice));
  return ok_status();
}

Status check_request(const Request& request) {
  const StopConditions& stop = request.stop;
  if (stop.max_new_tokens < 0)
    return invalid_argument(fmt::format("max_new_tokens is {}; accepted is 0 or more", stop.max_new_tokens));
  if (stop.min_new_tokens < 0 || (stop.min_new_tokens > stop.max_new_tokens && request.generates())) {
    return invalid_argument(fmt::format("min_new_tokens is {}; accepted is 0 to max_new_tokens, {}",
                                        stop.min_new_tokens, stop.max_new_tokens));
  }
  if (stop.texts.size() > kMaxStopTexts) {
    return invalid_argument(
        fmt::format("{} stop strings are given; at most {} are accepted", stop.texts.size(), kMaxStopTexts));
  }
  for (const std::string& text : stop.texts)
    if (text.empty()) return invalid_argument("a stop string is empty");
  if (request.grammar != nullptr && !request.sampling.allowed_tokens.empty())
    return invalid_argument("allowed_tokens and a grammar are given; accepted is one of them");
  if (const std::optional<ReasoningLimit>& limit = request.reasoning_limit) {
    if (limit->tokens < 1)
      return invalid_argument(fmt::format("the limit of the reasoning is {}; accepted is 1 or more", limit->tokens));
    if (limit->closing_ids.empty())
      return invalid_argument("the limit of the reasoning has no tokens that end it; at least one is needed");
    if (request.grammar != nullptr || !request.sampling.allowed_tokens.empty())
      return invalid_argument(
          fmt::format("the reasoning is limited to {} tokens, and {} the output; accepted is one of them",
                      limit->tokens, request.grammar != nullptr ? "a grammar constrains" : "allowed_tokens constrain"));
  }
  TRY(check_logprobs("logprobs of output tokens", request.logprobs.output));
  TRY(check_logprobs("logprobs of prompt tokens", request.logprobs.prompt));
  if (request.logprobs.prompt && request.logprobs.prompt_start < 0) {
    return invalid_argument(
        fmt::format("logprobs start at prompt token {}; accepted is 0 or more", request.logprobs.prompt_start));
  }
  if (request.score && request.score_from < 0)
    return invalid_argument(fmt::format("scores begin at prompt token {}; accepted is 0 or more", request.score_from));
  if (request.retention.seconds)
    TRY(in_range("the retention's seconds", *request.retention.seconds, 0, RetentionHint::kMostSeconds));
  if (const std::optional<std::int64_t> priority = request.retention.priority;
      priority && (*priority < 1 || *priority > RetentionHint::kMostPriority))
    return invalid_argument(
        fmt::format("the retention's priority is {}; accepted is 1 to {}", *priority, RetentionHint::kMostPriority));
  return in_range("timeout_s", request.timeout_s, 0, kMaxTimeoutSeconds);
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kTimeout: return "timeout";
    case FinishReason::kError: return "error";
  }
  return "";
}

}  // namespace tessera
