#include "tessera/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/base/log.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// splitmix64 (Steele et al., 2014): a stream of seeds from one seed.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

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

std::int64_t Engine::draw_seed() { return static_cast<std::int64_t>(next_random(seed_state_) >> 1); }

std::int64_t Engine::max_request_tokens() const {
  // The last token's keys and values are never needed.
  return std::min(runner_->options().context_length, scheduler_->pages().usable_tokens() + 1);
}

// What the prompt is made of: ids of the vocabulary, or embeddings.
Status Engine::check_inputs(const Request& request) const {
  const auto check_id = [&](std::string_view what, std::int32_t id) {
    if (id >= 0 && id < config_.vocab_size) return ok_status();
    return invalid_argument(fmt::format("{} has id {}; accepted are 0 to {}", what, id, config_.vocab_size - 1));
  };
  for (const auto& [token, bias] : request.sampling.logit_bias) TRY(check_id("a token of logit_bias", token.value()));
  for (const TokenId token : request.stop.ids) TRY(check_id("a stop token", token.value()));
  if (!request.input_embeds.empty()) {
    const auto hidden = static_cast<std::size_t>(config_.hidden_size);
    if (request.input_embeds.size() % hidden != 0) {
      return invalid_argument(fmt::format("input_embeds has {} numbers, which are no rows of the hidden size {}",
                                          request.input_embeds.size(), hidden));
    }
    if (!std::all_of(request.input_embeds.begin(), request.input_embeds.end(),
                     [](float x) { return std::isfinite(x); }))
      return invalid_argument("input_embeds has a number that is not finite");
    return ok_status();
  }
  if (request.prompt.empty()) return invalid_argument("the prompt is empty; at least one token is needed");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const std::int32_t id = request.prompt[i].value();
    if (id < 0 || id >= config_.vocab_size) return check_id(fmt::format("prompt token {}", i), id);
  }
  return ok_status();
}

Status Engine::check(Request& request) const {
  TRY(check_sampling(request.sampling));
  TRY(check_request(request));
  TRY(check_inputs(request));
  if (!request.stop.texts.empty() && tokenizer_ == std::nullopt)
    return invalid_argument("stop strings need a tokenizer, and the model has none");
  if (!request.input_embeds.empty())
    request.prompt.assign(request.input_embeds.size() / static_cast<std::size_t>(config_.hidden_size), TokenId(0));
  if (request.score) request.stop.max_new_tokens = 0;
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t context = max_request_tokens();
  const std::int64_t longest = std::min(context, scheduler_->pages().usable_tokens());
  const bool generates = request.stop.max_new_tokens > 0;
  if (length > longest || (length == context && generates)) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens, which is too long for a context of {}", length, longest));
  }
  request.stop.max_new_tokens = std::min(request.stop.max_new_tokens, context - length);
  request.stop.min_new_tokens = std::min(request.stop.min_new_tokens, request.stop.max_new_tokens);
  return ok_status();
}

Result<RequestId> Engine::submit(Request request) {
  TRY(check(request));
  // Those that came since the last step do not wait where the next one has room for them.
  const std::int64_t room = runner_->options().max_requests - scheduler_->num_running();
  const std::int64_t queued = scheduler_->num_waiting() - room;
  if (options_.max_queued_requests > 0 && queued >= options_.max_queued_requests) {
    return resource_exhausted(
        fmt::format("{} requests wait already, which is the most (--max-queued-requests)", queued));
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = RequestId(next_id_++);
  sequence->order = sequence->id.value();
  sequence->seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  const Request& kept = sequence->request;
  if (kept.sampling.edits_logits() || kept.stop.min_new_tokens > 0) {
    std::vector<TokenId> ends = kept.stop.ids;
    if (!kept.stop.ignore_eos) ends.insert(ends.end(), end_ids_.begin(), end_ids_.end());
    sequence->edits.emplace(kept, ends);
  }
  if (kept.grammar != nullptr) sequence->matcher.emplace(kept.grammar);
  if (tokenizer_ && (kept.wants_text || !kept.stop.texts.empty())) sequence->text.emplace(*tokenizer_, kept);
  sequence->arrived = Clock::now();
  if (kept.timeout_s > 0) {
    sequence->deadline =
        sequence->arrived + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kept.timeout_s));
  }
  const RequestId id = sequence->id;
  scheduler_->add(std::move(sequence));
  return id;
}

bool Engine::idle() const { return scheduler_->idle() && runner_->in_flight() == 0; }

bool Engine::ends_text(const Request& request, TokenId token) const {
  const auto has = [&](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return has(request.stop.ids) || (!request.stop.ignore_eos && has(end_ids_));
}

void Engine::take_out(RequestId id, FinishReason reason) {
  const std::unique_ptr<Sequence> sequence = scheduler_->remove(id, reason == FinishReason::kError);
  if (sequence == nullptr) return;
  for (ScheduledBatch& batch : batches_) {
    for (ScheduledBatch::Entry& entry : batch.entries)
      if (entry.sequence == sequence.get()) entry.sequence = nullptr;
  }
  Completion& done = sequence->result;
  done.output_ids.assign(sequence->tokens.begin() + sequence->prompt_tokens(),
                         sequence->tokens.end() - sequence->pending);
  done.finish = reason;
  done.prompt_tokens = sequence->prompt_tokens();
  done.seed = sequence->seed;
  done.total_ms = milliseconds_since(sequence->arrived);
  finished_.emplace(id, std::move(done));
}

void Engine::finish(RequestEvent event) {
  const RequestId id = event.request;
  const FinishReason reason = event.finish;
  events_.push_back(std::move(event));
  if (reason != FinishReason::kNone) take_out(id, reason);
}

void Engine::end_expired() {
  expired_.clear();
  scheduler_->find_expired(Clock::now(), expired_);
  for (const RequestId id : expired_) {
    finish({.request = id,
            .finish = FinishReason::kTimeout,
            .error = cancelled("the request has taken longer than its timeout_s")});
  }
}

Result<std::span<RequestEvent>> Engine::step() {
  events_.clear();
  end_expired();
  // What a sequence waits for is read before anything else is scheduled.
  const bool overlap = overlap_ && !scheduler_->reads_at_once();
  if (!overlap && runner_->in_flight() > 0) TRY(collect_oldest());
  const int before = runner_->in_flight();
  TRY(submit_next());
  const bool runs_ahead = overlap && runner_->in_flight() > before;
  if (runner_->in_flight() > (runs_ahead ? 1 : 0)) TRY(collect_oldest());
  return std::span<RequestEvent>(events_);
}

// Schedules into the batch behind those in flight and enqueues it. Its failure is its requests' own.
Status Engine::submit_next() {
  ScheduledBatch& next = batches_[static_cast<std::size_t>(runner_->in_flight())];
  scheduler_->next(next);
  if (next.entries.empty()) return ok_status();
  const auto size = [](std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns); };
  logits_.resize(next.wants_logits ? size(next.batch.num_wanted_rows(), config_.vocab_size) : 0);
  hidden_states_.resize(next.wants_hidden ? size(next.batch.num_tokens(), config_.hidden_size) : 0);
  const Result<Decision> decision = runner_->submit({.batch = next.batch,
                                                     .sampling = next.sampling,
                                                     .edits = &next.edits,
                                                     .logprob_targets = next.logprob_targets,
                                                     .top_logprobs = next.top_logprobs,
                                                     .logits = logits_,
                                                     .hidden_states = hidden_states_});
  if (decision.ok()) {
    next.decision = *decision;
    watch_fallbacks(*decision);
    scheduler_->mark_submitted(next);
    ++steps_;
    return ok_status();
  }
  if (decision.status().code() == StatusCode::kDeviceLost) return decision.status();
  fail(next, decision.status());
  // What it enqueued before it failed may have overwritten the ids that the step before it left on the device.
  if (runner_->in_flight() > 0) TRY(collect_oldest());
  scheduler_->forget_rows();
  return ok_status();
}

std::int64_t Engine::shape_compiles() const {
  return runner_->prefill().executable().num_binds() + runner_->decode().executable().num_binds() +
         runner_->head().executable().num_binds();
}

void Engine::watch_fallbacks(const Decision& decision) {
  const std::int64_t compiles = shape_compiles();
  const bool compiled = std::exchange(known_shape_compiles_, compiles) != compiles;
  if (const std::optional<std::string> warning = watch_.add(decision, compiled, Clock::now()))
    log_warn("dispatch", "{}", *warning);
}

Status Engine::collect_oldest() {
  const Result<StepOutputs> outputs = runner_->collect();
  if (outputs.ok()) {
    const ScheduledBatch& oldest = batches_.front();
    for (const ScheduledBatch::Entry& entry : oldest.entries)
      if (entry.sequence != nullptr) collect_entry(oldest, entry, *outputs);
  } else {
    if (outputs.status().code() == StatusCode::kDeviceLost) return outputs.status();
    fail(batches_.front(), outputs.status());
  }
  std::rotate(batches_.begin(), batches_.begin() + 1, batches_.end());
  batches_.back().entries.clear();
  return ok_status();
}

void Engine::fail(const ScheduledBatch& scheduled, const Status& error) {
  for (const ScheduledBatch::Entry& entry : scheduled.entries) {
    if (entry.sequence == nullptr) continue;
    finish({.request = entry.sequence->id, .finish = FinishReason::kError, .error = error});
  }
}

void Engine::collect_entry(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry,
                           const StepOutputs& outputs) {
  Sequence& sequence = *entry.sequence;
  RequestEvent event{.request = sequence.id};
  if (sequence.request.return_graph_info)
    add_graph_use(sequence.result.graph_uses, batch.phase(), batch.decision, entry.new_tokens);
  if (entry.prompt_rows > 0 || entry.position == 0) collect_prompt_rows(entry, outputs, batch.top_logprobs);
  if (sequence.request.return_hidden_states) collect_hidden(entry);
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
  // Rows of a forward that was in flight when the sequence was preempted come twice.
  const std::int64_t known = std::max<std::int64_t>(sequence.rows_delivered - entry.first_prompt_row, 0);
  sequence.rows_delivered = std::max(sequence.rows_delivered, entry.first_prompt_row + entry.prompt_rows);
  if (sequence.request.score) {
    const auto first = logits_.begin() + static_cast<std::ptrdiff_t>(entry.wanted_from * config_.vocab_size);
    std::vector<float>& logits = sequence.result.logits;
    logits.insert(logits.end(), first, first + static_cast<std::ptrdiff_t>(entry.prompt_rows * config_.vocab_size));
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

void Engine::collect_hidden(const ScheduledBatch::Entry& entry) {
  Sequence& sequence = *entry.sequence;
  const std::int64_t end = entry.position + entry.new_tokens;
  const std::int64_t first = std::max(entry.position, sequence.hidden_delivered);
  if (first >= end) return;
  const auto begin = hidden_states_.begin() +
                     static_cast<std::ptrdiff_t>((entry.first_token + first - entry.position) * config_.hidden_size);
  std::vector<float>& hidden = sequence.result.hidden_states;
  hidden.insert(hidden.end(), begin, begin + static_cast<std::ptrdiff_t>((end - first) * config_.hidden_size));
  sequence.hidden_delivered = end;
}

void Engine::collect_token(const ScheduledBatch& batch, const ScheduledBatch::Entry& entry, const StepOutputs& outputs,
                           RequestEvent& event) {
  Sequence& sequence = *entry.sequence;
  const StopConditions& stop = sequence.request.stop;
  const TokenId token = outputs.sampled[static_cast<std::size_t>(entry.row)];
  const std::int64_t generated = entry.next_token - sequence.prompt_tokens();  // before this one
  if (generated == 0) sequence.result.time_to_first_token_ms = milliseconds_since(sequence.arrived);
  if (sequence.matcher) event.error = sequence.matcher->status();
  if (!event.error.ok()) {
    event.finish = FinishReason::kError;
    return;
  }
  const bool may_stop = generated >= stop.min_new_tokens;
  const bool ends = may_stop && ends_text(sequence.request, token);
  if (ends) {
    event.finish = FinishReason::kStop;
    sequence.result.matched.id = token;
    // Unless it is kept, the token, like those a later forward samples, stays pending for ever.
    if (!stop.keep_matched) return;
  }
  Scheduler::settle(entry, token);
  ++output_tokens_;
  event.token = token;
  if (const std::optional<int> top = sequence.request.logprobs.output) {
    event.logprobs = logprobs_of(token, entry.row, batch.top_logprobs, *top, outputs);
    sequence.result.output_logprobs.push_back(*event.logprobs);
  }
  if (sequence.edits) sequence.edits->count(token);
  if (sequence.text) {
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

std::optional<Completion> Engine::take(RequestId id) {
  const auto it = finished_.find(id);
  if (it == finished_.end()) return std::nullopt;
  Completion done = std::move(it->second);
  finished_.erase(it);
  return done;
}

Result<bool> Engine::idle_work() {
  if (!idle()) return internal_error("idle work is asked for while requests run");
  const bool left = TRY(runner_->idle_work());
  known_shape_compiles_ = shape_compiles();  // no forward waited for those
  if (!left) profiles_->save(runner_->costs());
  return left;
}

void Engine::cancel(RequestId id) { take_out(id, FinishReason::kCancelled); }

Result<std::vector<Completion>> Engine::run(std::span<const Request> requests,
                                            const std::function<void(std::size_t, const RequestEvent&)>& on_event) {
  std::vector<RequestId> ids;
  ids.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Result<RequestId> id = submit(requests[i]);
    if (!id.ok()) {
      for (const RequestId queued : ids) {
        cancel(queued);
        take(queued);
      }
      return requests.size() > 1 ? id.status().with_context(fmt::format("request {}", i)) : id.status();
    }
    ids.push_back(*id);
  }
  Status failure;
  while (!idle()) {
    for (const RequestEvent& event : TRY(step())) {
      if (!event.error.ok() && failure.ok()) failure = event.error;
      // Ids are given in ascending order.
      const auto it = std::lower_bound(ids.begin(), ids.end(), event.request);
      if (on_event && it != ids.end() && *it == event.request)
        on_event(static_cast<std::size_t>(it - ids.begin()), event);
    }
  }
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(*take(id));
  TRY(failure);
  return completions;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  scheduler_->report(stats);
  stats.output_tokens = output_tokens_;
  stats.steps = steps_;
  stats.forwards = runner_->counters();
  stats.graphs = inventory_.of(*runner_);
  stats.profile_cache_hits = profiles_->cache_hits();
  return stats;
}

}  // namespace tessera
