// Submits requests: checks them, draws their seeds, and queues them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/engine/engine.h"

namespace tessera {
namespace {

// splitmix64 (Steele et al., 2014): makes a stream of seeds from one seed.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Returns a mask with one bit for each token, set for `tokens`.
std::vector<std::uint32_t> mask_of(std::span<const TokenId> tokens, std::int64_t vocab_size) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size)));
  for (const TokenId token : tokens) {
    const auto bit = static_cast<std::uint32_t>(token.value());
    mask[bit / 32] |= 1U << (bit % 32);
  }
  return mask;
}

}  // namespace

std::int64_t Engine::draw_seed() { return static_cast<std::int64_t>(next_random(seed_state_) >> 1); }

std::int64_t Engine::max_request_tokens() const {
  // The keys and values of the last generated token are never needed.
  return std::min(runner_->options().context_length, scheduler_->cache().max_tokens() + (generates() ? 1 : 0));
}

// Checks the prompt's content: ids of the vocabulary, or embeddings.
Status Engine::check_inputs(const Request& request) const {
  const auto check_id = [&](std::string_view what, std::int32_t id) {
    if (id >= 0 && id < config_.vocab_size) return ok_status();
    return invalid_argument(fmt::format("{} has id {}; accepted are 0 to {}", what, id, config_.vocab_size - 1));
  };
  for (const auto& [token, bias] : request.sampling.logit_bias) TRY(check_id("a token of logit_bias", token.value()));
  for (const std::vector<TokenId>& word : request.sampling.bad_words)
    for (const TokenId token : word) TRY(check_id("a token of bad_words", token.value()));
  for (const TokenId token : request.sampling.allowed_tokens) TRY(check_id("an allowed token", token.value()));
  for (const TokenId token : request.stop.ids) TRY(check_id("a stop token", token.value()));
  if (!request.input_embeds.empty()) {
    if (!request.images.empty()) return invalid_argument("input_embeds and images are given; accepted is one of them");
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
  TRY(check_images(request));
  if (request.prompt.empty()) return invalid_argument("the prompt is empty; at least one token is needed");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const std::int32_t id = request.prompt[i].value();
    if (id < 0 || id >= config_.vocab_size) return check_id(fmt::format("prompt token {}", i), id);
  }
  return ok_status();
}

// Checks that a model without its own head, or with a head for labels, can serve the request.
Status Engine::check_task(const Request& request) const {
  if (generates()) return ok_status();
  const bool wants_tokens = request.stop.max_new_tokens > 0 || request.logprobs.prompt || (embedding_ && request.score);
  if (!wants_tokens) return ok_status();
  return invalid_argument(
      embedding_
          ? "the model makes embeddings and no tokens: accepted are requests with a pooling"
          : "the model is a classifier and makes no tokens: accepted are requests for scores, or with a pooling");
}

Status Engine::check(Request& request) const {
  TRY(check_sampling(request.sampling));
  TRY(check_request(request));
  TRY(check_inputs(request));
  if (!request.stop.texts.empty() && texts_.tokenizer == std::nullopt)
    return invalid_argument("stop strings need a tokenizer, and the model has none");
  if (!request.input_embeds.empty())
    request.prompt.assign(request.input_embeds.size() / static_cast<std::size_t>(config_.hidden_size), TokenId(0));
  widen_embeddings(request);
  if (!request.generates()) request.stop.max_new_tokens = 0;
  TRY(check_task(request));
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (request.score && request.score_from >= length) {
    return invalid_argument(fmt::format("scores begin at prompt token {}; accepted is 0 to {}, the prompt's last",
                                        request.score_from, length - 1));
  }
  const std::int64_t context = max_request_tokens();
  const std::int64_t longest = std::min(context, scheduler_->cache().max_tokens());
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
  // Requests that arrived since the last step do not count as queued where the next step has room for them.
  const std::int64_t room = runner_->options().max_requests - scheduler_->num_running();
  const std::int64_t queued = scheduler_->num_waiting() - room;
  const bool is_limited = options_.max_queued_requests > 0 && request.priority < kProbePriority;
  if (is_limited && queued >= options_.max_queued_requests) {
    return resource_exhausted(fmt::format("{} requests wait already, which is the most (max_queued_requests)", queued));
  }
  TRY(reserve_embeddings(request));
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
  if (!kept.sampling.allowed_tokens.empty())
    sequence->allowed = mask_of(kept.sampling.allowed_tokens, config_.vocab_size);
  if (kept.grammar != nullptr) sequence->matcher.emplace(kept.grammar);
  if (texts_.tokenizer && (kept.wants_text || !kept.stop.texts.empty()))
    sequence->text.emplace(*texts_.tokenizer, kept);
  add_images(*sequence);
  using Clock = Sequence::Clock;
  sequence->arrived = Clock::now();
  if (kept.timeout_s > 0) {
    sequence->deadline =
        sequence->arrived + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kept.timeout_s));
  }
  pace_.arrived(sequence->arrived);
  const RequestId id = sequence->id;
  scheduler_->add(std::move(sequence));
  return id;
}

}  // namespace tessera
