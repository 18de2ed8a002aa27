// Collects a forward's outputs: tokens, texts, log-probabilities and hidden states of each of its sequences.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "tessera/engine/engine.h"

namespace tessera {
namespace {

TokenLogprobs logprobs_of(TokenId token, std::int64_t row, int top, int wanted, const StepOutputs& outputs) {
  TokenLogprobs made{.token = {.id = token, .logprob = outputs.logprobs[static_cast<std::size_t>(row)]}};
  made.top.reserve(static_cast<std::size_t>(wanted));
  for (int i = 0; i < wanted; ++i) {
    const auto at = static_cast<std::size_t>(row * top + i);
    made.top.push_back({.id = outputs.top_ids[at], .logprob = outputs.top_logprobs[at]});
  }
  return made;
}

}  // namespace

bool Engine::ends_text(const Request& request, TokenId token) const {
  const auto has = [&](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return has(request.stop.ids) || (!request.stop.ignore_eos && has(end_ids_));
}

void Engine::collect_entry(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                           const StepOutputs& outputs) {
  Sequence& sequence = *entry.sequence;
  RequestEvent event{.request = sequence.id};
  if (sequence.request.return_graph_info)
    add_graph_use(sequence.result.graph_uses, batch.phase(), batch.decision, entry.new_tokens);
  if (entry.prompt_rows > 0 || entry.position == 0) collect_prompt_rows(entry, outputs, batch.top_logprobs);
  if (entry.hidden_count > 0) collect_hidden(entry);
  if (entry.row >= 0) {
    collect_token(batch, entry, outputs, event);
  } else if (sequence.request.stop.max_new_tokens == 0 &&
             entry.position + entry.new_tokens == sequence.prompt_tokens()) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish != FinishReason::kNone && sequence.text) event.text += sequence.text->finish();
  sequence.result.text += event.text;
  if (event.token || event.finish != FinishReason::kNone) finish(std::move(event));
}

void Engine::collect_prompt_rows(const ScheduledBatch::Entry& entry, const StepOutputs& outputs, int top) {
  Sequence& sequence = *entry.sequence;
  // Rows of a forward that was in flight when the sequence was preempted are computed twice and delivered once.
  const std::int64_t known = std::max<std::int64_t>(sequence.rows_delivered - entry.first_prompt_row, 0);
  sequence.rows_delivered = std::max(sequence.rows_delivered, entry.first_prompt_row + entry.prompt_rows);
  if (sequence.request.score) {
    const auto first = logits_.begin() + static_cast<std::ptrdiff_t>(entry.wanted_from * config_.num_logits());
    std::vector<float>& logits = sequence.result.logits;
    logits.insert(logits.end(), first, first + static_cast<std::ptrdiff_t>(entry.prompt_rows * config_.num_logits()));
    return;
  }
  if (!sequence.request.logprobs.prompt) return;
  std::vector<TokenLogprobs>& logprobs = sequence.result.prompt_logprobs;
  if (sequence.request.logprobs.prompt_start == 0 && logprobs.empty())
    logprobs.push_back({.token = {.id = sequence.tokens[0], .logprob = std::numeric_limits<float>::quiet_NaN()}});
  for (std::int64_t i = known; i < entry.prompt_rows; ++i) {
    const TokenId token = sequence.tokens[static_cast<std::size_t>(entry.first_prompt_row + i + 1)];
    logprobs.push_back(logprobs_of(token, entry.wanted_from + i, top, *sequence.request.logprobs.prompt, outputs));
  }
}

// Tokens of a preempted sequence are computed twice and delivered once.
void Engine::collect_hidden(const ScheduledBatch::Entry& entry) {
  Sequence& sequence = *entry.sequence;
  const std::int64_t end = entry.first_hidden + entry.hidden_count;
  const std::int64_t first = std::max(entry.first_hidden, sequence.hidden_delivered);
  if (first >= end) return;
  const std::int64_t size = config_.hidden_size;
  const std::span<const float> rows =
      std::span(hidden_states_)
          .subspan(static_cast<std::size_t>((entry.hidden_from + first - entry.first_hidden) * size),
                   static_cast<std::size_t>((end - first) * size));
  if (sequence.request.return_hidden_states) {
    std::vector<float>& hidden = sequence.result.hidden_states;
    if (sequence.request.last_hidden_state_only) {
      hidden.assign(rows.end() - size, rows.end());
    } else {
      // Reserves the whole size, because a vector that grows by doubling needs twice the memory meanwhile.
      if (hidden.empty()) hidden.reserve(static_cast<std::size_t>(sequence.prompt_tokens() * size));
      hidden.insert(hidden.end(), rows.begin(), rows.end());
    }
  }
  pool(sequence, first, rows);
  sequence.hidden_delivered = end;
}

// Adds the `rows` of the tokens from `first` on. Sums have one order, however a prompt is cut into chunks.
void Engine::pool(Sequence& sequence, std::int64_t first, std::span<const float> rows) const {
  const Pooling pooling = sequence.request.pooling;
  const auto size = static_cast<std::size_t>(config_.hidden_size);
  const std::int64_t end = first + static_cast<std::int64_t>(rows.size() / size);
  const bool is_whole = end == sequence.prompt_tokens();
  std::vector<float>& pooled = sequence.result.pooled;
  if (pooling == Pooling::kFirst && first == 0) pooled.assign(rows.begin(), rows.begin() + config_.hidden_size);
  if (pooling == Pooling::kLast && is_whole) pooled.assign(rows.end() - config_.hidden_size, rows.end());
  if (pooling != Pooling::kMean) return;
  std::vector<double>& sum = sequence.pooled_sum;
  sum.resize(size);
  for (std::size_t i = 0; i < rows.size(); ++i) sum[i % size] += static_cast<double>(rows[i]);
  if (!is_whole) return;
  pooled.reserve(size);
  for (const double value : sum) pooled.push_back(static_cast<float>(value / static_cast<double>(end)));
}

void Engine::collect_token(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
                           RequestEvent& event) {
  Sequence& sequence = *entry.sequence;
  const StopConditions& stop = sequence.request.stop;
  const TokenId token = outputs.sampled[static_cast<std::size_t>(entry.row)];
  // Number of output tokens before this one.
  const std::int64_t generated = entry.next_token - sequence.prompt_tokens();
  if (generated == 0) sequence.result.time_to_first_token_ms = sequence.elapsed_ms();
  if (sequence.matcher) event.error = sequence.matcher->status();
  // Where every token is forbidden, the sampler still returns one. A token that only the grammar forbids is not the
  // client's fault, and accept() reports it.
  const bool edited = sequence.edits && sequence.edits->any(generated);
  if (event.error.ok() &&
      (!sequence.may_choose(token, generated) || (edited && sequence.matcher && !sequence.matcher->allows(token)))) {
    event.error =
        invalid_argument(fmt::format("no token is left to be chosen as output token {}: {} forbid all", generated,
                                     sequence.matcher ? "the grammar (response_format, json_schema, regex, ebnf, "
                                                        "structured_outputs or tool_choice), bad_words and min_tokens"
                                                      : "bad_words, min_tokens and allowed_token_ids"));
  }
  if (!event.error.ok()) {
    event.finish = FinishReason::kError;
    return;
  }
  const bool may_stop = generated >= stop.min_new_tokens;
  const bool ends = may_stop && ends_text(sequence.request, token);
  if (ends) {
    event.finish = FinishReason::kStop;
    sequence.result.matched.id = token;
    // The token is settled only if it is kept, and so are tokens that later forwards sample.
    if (!stop.keep_matched) return;
  }
  Scheduler::settle(entry, token);
  if (output_tokens_++ == 0) {
    first_token_ = {.name = "first token",
                    .begin_s = start_.seconds_at(sequence.arrived),
                    .end_s = start_.seconds_at(Timeline::Clock::now())};
  }
  event.token = token;
  if (const std::optional<int> top = sequence.request.logprobs.output) {
    event.logprobs = logprobs_of(token, entry.row, batch.top_logprobs, *top, outputs);
    sequence.result.output_logprobs.push_back(*event.logprobs);
  }
  if (sequence.edits) sequence.edits->count(token);
  if (sequence.text) {
    const StepProfiler::Scope decoding(profiler(), HostWork::kText);
    event.text = sequence.text->push(token, may_stop && generated + 1 >= stop.min_new_tokens);
    if (sequence.text->matched()) {
      event.finish = FinishReason::kStop;
      sequence.result.matched.text = sequence.text->matched();
    }
  }
  if (sequence.matcher && event.finish == FinishReason::kNone) {
    if (Status taken = sequence.matcher->accept(token); !taken.ok()) {
      event.finish = FinishReason::kError;
      event.error = std::move(taken);
    } else if (sequence.matcher->finished()) {
      event.finish = FinishReason::kStop;
    }
  }
  if (event.finish == FinishReason::kNone && generated + 1 >= stop.max_new_tokens) event.finish = FinishReason::kLength;
}

}  // namespace tessera
