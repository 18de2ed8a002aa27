#include "tessera/engine/outputs/token_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "tessera/engine/outputs/token_logprobs.h"
#include "tessera/engine/schedule/scheduler.h"

namespace tessera {
namespace {

bool ends_text(const StopConditions& stop, std::span<const TokenId> end_ids, TokenId token) {
  const auto is_in = [&](std::span<const TokenId> ids) { return std::ranges::find(ids, token) != ids.end(); };
  return is_in(stop.ids) || (!stop.ignore_eos && is_in(end_ids));
}

// Returns an error if the limit of the reasoning requires a token that the request forbids.
Status check_forced(const Sequence& sequence, std::int64_t generated) {
  const std::optional<TokenId> forced = sequence.reasoning ? sequence.reasoning->forced() : std::nullopt;
  if (!forced || sequence.may_choose(*forced, generated)) return ok_status();
  const ReasoningLimit& limit = *sequence.request.reasoning_limit;
  return invalid_argument(fmt::format(
      "the reasoning has reached its limit of {} tokens, but bad_words or min_tokens forbid token {} of its "
      "closing mark \"{}\" as output token {}; accepted: bad_words and min_tokens that allow this mark, or "
      "no limit",
      limit.tokens, forced->value(), limit.closing, generated));
}

// Returns an error if the sampled token is forbidden. This can happen because the sampler returns a token even if all
// are forbidden. A token that only the grammar forbids is no error here, because that is not the client's fault, and
// accept() reports it.
Status check_choice(const Sequence& sequence, TokenId token, std::int64_t generated) {
  if (sequence.matcher) TRY(sequence.matcher->status());
  TRY(check_forced(sequence, generated));
  const bool edited = sequence.edits && sequence.edits->any(generated);
  if (sequence.may_choose(token, generated) && !(edited && sequence.matcher && !sequence.matcher->allows(token)))
    return ok_status();
  return invalid_argument(
      fmt::format("no token is left to be chosen as output token {}: {} forbid all", generated,
                  sequence.matcher ? "the grammar (response_format, json_schema, regex, ebnf, structured_outputs or "
                                     "tool_choice), bad_words and min_tokens"
                                   : "bad_words, min_tokens and allowed_token_ids"));
}

void add_text(Sequence& sequence, TokenId token, bool may_stop, StepProfiler* profiler, RequestEvent& event) {
  const StepProfiler::Scope decoding(profiler, HostWork::kText);
  event.text = sequence.text->push(token, may_stop);
  if (!sequence.text->matched()) return;
  event.finish = FinishReason::kStop;
  sequence.result.matched.text = sequence.text->matched();
}

void follow_grammar(GrammarMatcher& matcher, TokenId token, RequestEvent& event) {
  if (Status taken = matcher.accept(token); !taken.ok()) {
    event.finish = FinishReason::kError;
    event.error = std::move(taken);
  } else if (matcher.finished()) {
    event.finish = FinishReason::kStop;
  }
}

}  // namespace

void add_token(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
               std::span<const TokenId> end_ids, StepProfiler* profiler, RequestEvent& event) {
  Sequence& sequence = *entry.sequence;
  const StopConditions& stop = sequence.request.stop;
  const TokenId token = outputs.sampled[static_cast<std::size_t>(entry.row)];
  // The number of output tokens before this one.
  const std::int64_t generated = entry.next_token - sequence.prompt_tokens();
  if (generated == 0) sequence.result.time_to_first_token_ms = sequence.elapsed_ms();
  event.error = check_choice(sequence, token, generated);
  if (!event.error.ok()) {
    event.finish = FinishReason::kError;
    return;
  }
  const bool may_stop = generated >= stop.min_new_tokens;
  if (may_stop && ends_text(stop, end_ids, token)) {
    event.finish = FinishReason::kStop;
    sequence.result.matched.id = token;
    // The token is added to the sequence only if the request keeps it (keep_matched). Later tokens of the sequence,
    // from forwards that are in flight, are never added.
    if (!stop.keep_matched) return;
  }
  Scheduler::settle(entry, token);
  event.token = token;
  if (const std::optional<int> top = sequence.request.logprobs.output) {
    event.logprobs = logprobs_of(token, entry.row, batch.top_logprobs, *top, outputs);
    sequence.result.output_logprobs.push_back(*event.logprobs);
  }
  if (sequence.edits) sequence.edits->count(token);
  if (sequence.text) add_text(sequence, token, may_stop && generated + 1 >= stop.min_new_tokens, profiler, event);
  if (sequence.reasoning) sequence.reasoning->follow(token, event.text);
  if (sequence.matcher && event.finish == FinishReason::kNone) follow_grammar(*sequence.matcher, token, event);
  if (event.finish == FinishReason::kNone && generated + 1 >= stop.max_new_tokens) event.finish = FinishReason::kLength;
}

}  // namespace tessera
