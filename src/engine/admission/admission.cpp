#include "tessera/engine/admission/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "tessera/engine/admission/given_embeddings.h"
#include "tessera/engine/admission/id_checks.h"
#include "tessera/engine/admission/image_checks.h"

namespace tessera {
namespace {

// Returns a mask with one bit for each token of the vocabulary. The bits of `tokens` are set.
std::vector<std::uint32_t> mask_of(std::span<const TokenId> tokens, std::int64_t vocab_size) {
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size)));
  for (const TokenId token : tokens) {
    const auto bit = static_cast<std::uint32_t>(token.value());
    mask[bit / 32] |= 1U << (bit % 32);
  }
  return mask;
}

// Returns whether drafts may be made for the sequence. Its request must generate at least three tokens, because a
// shorter output has no room for a draft. Its prompt must have ids, not embeddings. It must not want hidden states,
// because these would include the hidden states of refused drafts. Edits of its logits must not depend on earlier
// tokens.
bool may_draft(const Sequence& sequence) {
  return sequence.request.generates() && sequence.request.stop.max_new_tokens > 2 &&
         sequence.request.input_embeds.empty() && !sequence.request.score && !sequence.wants_hidden() &&
         !(sequence.edits && sequence.edits->follow_text());
}

}  // namespace

Admission::Admission(const LoadedModel& model, const ImageEncoder* encoder, Scheduler& scheduler,
                     const AdapterPool& adapters)
    : model_(model), encoder_(encoder), scheduler_(scheduler), adapters_(adapters), seeds_(model.options.random_seed) {
  scheduler_.grow_embeddings(model_.runner->embedding_rows());
}

std::int64_t Admission::max_request_tokens() const {
  // The last generated token needs no keys and values, so a request may have one token more than the cache holds.
  return std::min(model_.runner->options().context_length,
                  scheduler_.cache().max_tokens() + (model_.generates() ? 1 : 0));
}

Result<std::unique_ptr<Sequence>> Admission::admit(Request request) {
  TRY(check(request));
  std::shared_ptr<ServedAdapter> adapter = TRY(adapters_.find(request.adapter));
  TRY(check_queue(request));
  TRY(reserve_embeddings(request));
  std::unique_ptr<Sequence> sequence = sequence_of(std::move(request));
  sequence->adapter = std::move(adapter);
  return sequence;
}

// Checks the request, prepares its embeddings, and lowers max_new_tokens to the number of tokens for which there is
// room after the prompt.
Status Admission::check(Request& request) const {
  TRY(check_sampling(request.sampling));
  TRY(check_request(request));
  TRY(check_inputs(request));
  if (!request.stop.texts.empty() && model_.tokenizer() == nullptr)
    return invalid_argument("stop strings need a tokenizer, and the model has none");
  take_embeddings(model_.config, request);
  if (!request.generates()) request.stop.max_new_tokens = 0;
  TRY(check_task(request));
  TRY(check_length(request));
  const std::int64_t left = max_request_tokens() - std::ssize(request.prompt);
  request.stop.max_new_tokens = std::min(request.stop.max_new_tokens, left);
  request.stop.min_new_tokens = std::min(request.stop.min_new_tokens, request.stop.max_new_tokens);
  return ok_status();
}

// Checks the ids in the request's options, and its prompt. The prompt must consist of valid embeddings, or of ids in
// the vocabulary, with placeholders exactly where the request has images.
Status Admission::check_inputs(const Request& request) const {
  TRY(check_chosen_ids(request, model_.config.vocab_size));
  if (!request.input_embeds.empty()) return check_embeddings(request, model_.config.hidden_size);
  TRY(check_images(request, model_.config, encoder_));
  return check_prompt_ids(request.prompt, model_.config.vocab_size);
}

// Checks that a request to a classifier or an embedding model asks for nothing that the model cannot give. Neither kind
// of model gives tokens or log-probabilities of the prompt. An embedding model gives no scores either.
Status Admission::check_task(const Request& request) const {
  if (model_.generates()) return ok_status();
  const bool wants_tokens =
      request.stop.max_new_tokens > 0 || request.logprobs.prompt || (model_.embedding && request.score);
  if (!wants_tokens) return ok_status();
  return invalid_argument(
      model_.embedding
          ? "the model makes embeddings and no tokens; accepted: requests with a pooling"
          : "the model is a classifier and makes no tokens; accepted: requests for scores or with a pooling");
}

Status Admission::check_length(const Request& request) const {
  const std::int64_t length = std::ssize(request.prompt);
  if (request.score && request.score_from >= length) {
    return invalid_argument(fmt::format("scores begin at prompt token {}; accepted is 0 to {}, the prompt's last token",
                                        request.score_from, length - 1));
  }
  const std::int64_t context = max_request_tokens();
  const std::int64_t longest = std::min(context, scheduler_.cache().max_tokens());
  const bool generates = request.stop.max_new_tokens > 0;
  if (length > longest || (length == context && generates)) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens, which is too long for a context of {}", length, longest));
  }
  return ok_status();
}

Status Admission::check_queue(const Request& request) const {
  const std::int64_t most = model_.options.max_queued_requests;
  // Waiting requests do not count as queued if the next step has room for them.
  const std::int64_t room = model_.scheduling.max_running - scheduler_.num_running();
  const std::int64_t queued = scheduler_.num_waiting() - room;
  const bool is_limited = most > 0 && request.priority < kProbePriority;
  if (!is_limited || queued < most) return ok_status();
  return resource_exhausted(fmt::format("{} requests wait already, the most that max_queued_requests allows", queued));
}

// Reserves device memory for embedding rows. Images need one row for each token of the request's largest image. Given
// embeddings need one row for each token of the prompt, and at least as many rows as a forward may have tokens.
Status Admission::reserve_embeddings(const Request& request) {
  ModelRunner& runner = *model_.runner;
  std::int64_t rows = 0;
  if (!request.input_embeds.empty()) rows = std::max(std::ssize(request.prompt), runner.options().max_tokens);
  for (const PromptImage& image : request.images) rows = std::max(rows, image.patches->tokens());
  TRY(runner.reserve_embeddings(rows).with_context(
      "memory for the prompt's embeddings (a lower mem_fraction_static leaves more)"));
  scheduler_.grow_embeddings(runner.embedding_rows());
  return ok_status();
}

std::unique_ptr<Sequence> Admission::sequence_of(Request request) {
  using Clock = Sequence::Clock;
  auto sequence = std::make_unique<Sequence>();
  sequence->id = RequestId(next_id_++);
  sequence->order = sequence->id.value();
  sequence->seed = request.sampling.seed ? *request.sampling.seed : seeds_.draw();
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  const Request& kept = sequence->request;
  if (kept.sampling.edits_logits() || kept.stop.min_new_tokens > 0) {
    std::vector<TokenId> ends = kept.stop.ids;
    if (!kept.stop.ignore_eos) ends.insert(ends.end(), model_.end_ids.begin(), model_.end_ids.end());
    sequence->edits.emplace(kept, ends);
  }
  if (!kept.sampling.allowed_tokens.empty())
    sequence->allowed = mask_of(kept.sampling.allowed_tokens, model_.config.vocab_size);
  if (kept.grammar != nullptr) sequence->matcher.emplace(kept.grammar);
  if (kept.reasoning_limit) sequence->reasoning.emplace(*kept.reasoning_limit);
  if (model_.tokenizer() != nullptr && (kept.wants_text || !kept.stop.texts.empty()))
    sequence->text.emplace(*model_.tokenizer(), kept);
  place_images(model_.config, *sequence);
  sequence->arrived = Clock::now();
  const DraftOptions& drafts = model_.options.drafts;
  const bool by_layer = drafts.by_layer();
  const bool is_tried = by_layer && !drafts.for_all_requests;
  // If a next-token layer or a draft model makes the drafts, and trials have shown that such drafts do not pay, only
  // few requests get drafts (draft_trials.h). Drafts from the text need no trials, because other requests do not show
  // whether this request's text repeats itself.
  const bool drafting = drafts.any() && may_draft(*sequence);
  sequence->awaits_trials =
      drafting && is_tried && !trials_->begin(sequence->arrived, {scheduler_.num_running(), scheduler_.num_waiting()});
  if (drafting && !sequence->awaits_trials) {
    // If drafts are accepted at random (forced_tokens, for measurements), all drafts come from the layer or draft
    // model. The resulting texts repeat themselves, so the drafter would otherwise take drafts from the text.
    const bool by_layer_alone = by_layer && drafts.forced_tokens > 0;
    sequence->drafter.emplace(by_layer_alone ? 0 : drafts.most_tokens, by_layer ? drafts.layer_steps : 0,
                              is_tried ? trials_ : nullptr);
  }
  if (kept.timeout_s > 0) {
    sequence->deadline =
        sequence->arrived + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kept.timeout_s));
  }
  return sequence;
}

}  // namespace tessera
