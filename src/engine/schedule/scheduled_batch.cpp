#include "tessera/engine/schedule/scheduled_batch.h"

#include <algorithm>
#include <numeric>

#include "tessera/engine/schedule/batch_rows.h"

namespace tessera {

void ScheduledBatch::clear(std::size_t num_cache_groups) {
  clear_rows(num_cache_groups, batch, rope_positions);
  images.clear();
  sampling.clear();
  edits.clear();
  logprob_targets.clear();
  prompt_rows_.clear();
  prompt_targets_.clear();
  entries.clear();
  hidden_rows.clear();
  draft_masks_.clear();
  wants_logits = wants_logprobs = false;
  top_logprobs = 0;
  num_decoding = 0;
  saving.reset();
  waits_for_drafts_alone = false;
}

void ScheduledBatch::append(Sequence& sequence, std::int64_t count, const CacheManager& cache,
                            std::int64_t vocab_size) {
  if (sequence.decodes()) ++num_decoding;
  const auto total = static_cast<std::int64_t>(sequence.tokens.size());
  Entry entry{.sequence = &sequence,
              .new_tokens = count,
              .first_token = batch.num_tokens(),
              .position = sequence.computed,
              .row = -1,
              .next_token = total,
              .drafts = std::ssize(sequence.drafts),
              .prompt_rows = 0,
              .first_prompt_row = 0,
              .wanted_from = 0,
              .hidden_count = 0,
              .first_hidden = 0,
              .hidden_from = 0};
  for (std::int64_t position = sequence.computed; position < sequence.computed + count; ++position) {
    const auto at = static_cast<std::size_t>(position);
    batch.input_ids.push_back(sequence.tokens[at]);
    // The newest token's id is read on the device, because the host may not have it yet.
    batch.input_rows.push_back(position == total - 1 && sequence.generated() > 0 ? sequence.last_row : -1);
  }
  for (const TokenId draft : sequence.drafts) {
    batch.input_ids.push_back(draft);
    batch.input_rows.push_back(-1);
  }
  const std::int64_t with_drafts = count + entry.drafts;
  const std::int64_t kv_len = sequence.computed + with_drafts;
  append_rows(sequence, sequence.computed, with_drafts, cache, batch, rope_positions);
  if (entry.drafts > 0) {
    batch.draft_lens.resize(batch.query_lens.size(), 0);
    batch.draft_lens.back() = static_cast<std::int32_t>(entry.drafts);
  }
  if (sequence.accepted_drafts > 0) {
    batch.accepted_drafts.resize(batch.query_lens.size(), 0);
    batch.accepted_drafts.back() = static_cast<std::int32_t>(sequence.accepted_drafts);
  }
  if (sequence.adapter != nullptr) {
    batch.adapter_slots.resize(static_cast<std::size_t>(entry.first_token), -1);
    batch.adapter_slots.resize(batch.input_ids.size(), static_cast<std::int32_t>(sequence.adapter->slot));
  }
  append_embeddings(sequence, kv_len);
  append_images(sequence, kv_len);
  append_prompt_rows(sequence, entry);
  append_hidden_rows(sequence, entry);
  const bool samples =
      sequence.computed + count == total && sequence.request.generates() && sequence.request.stop.max_new_tokens > 0;
  if (samples) {
    entry.row = batch.num_wanted_rows();
    for (std::int64_t ahead = 0; ahead <= entry.drafts; ++ahead) {
      batch.wanted_rows.push_back(static_cast<std::int32_t>(entry.first_token + count - 1 + ahead));
      append_sampled_row(sequence, ahead, vocab_size);
    }
  }
  wants_logits |= sequence.request.score;
  entries.push_back(entry);
}

// Adds the given embeddings of the tokens from `computed` to `kv_len`, because the forward that computes a token of the
// prompt also writes the token's embedding row.
void ScheduledBatch::append_embeddings(const Sequence& sequence, std::int64_t kv_len) {
  const std::vector<float>& embeds = sequence.request.input_embeds;
  const std::int64_t end = std::min(kv_len, sequence.prompt_tokens());
  if (embeds.empty() || sequence.computed >= end) return;
  const std::size_t hidden = embeds.size() / sequence.request.prompt.size();
  const auto count = static_cast<std::size_t>(end - sequence.computed);
  const std::int64_t first = sequence.first_embedding + sequence.computed;
  batch.embedding_writes.push_back(
      {.first_row = first,
       .values = std::span(embeds).subspan(static_cast<std::size_t>(sequence.computed) * hidden, count * hidden)});
  const auto tokens = static_cast<std::size_t>(batch.num_tokens() - (kv_len - sequence.computed));
  batch.embedding_rows.resize(tokens + count, -1);
  std::iota(batch.embedding_rows.begin() + static_cast<std::ptrdiff_t>(tokens), batch.embedding_rows.end(),
            static_cast<std::int32_t>(first));
}

// Adds the image rows of the tokens up to `kv_len`, and lists the images to encode. An image that another sequence of
// this batch already lists is listed again only if this sequence's request wants the image's rows returned.
void ScheduledBatch::append_images(Sequence& sequence, std::int64_t kv_len) {
  if (sequence.computed >= sequence.prompt_tokens()) return;
  const std::int64_t first_token = batch.num_tokens() - (kv_len - sequence.computed);
  for (std::size_t i = 0; i < sequence.images.size(); ++i) {
    const ImageSpan& span = sequence.images[i];
    const std::int64_t begin = std::max(span.first_token, sequence.computed);
    const std::int64_t end = std::min(span.end(), kv_len);
    if (begin >= end) continue;
    const ImageRows::Image& rows = *sequence.image_rows[i];
    const bool is_listed =
        std::ranges::any_of(images, [&](const ImageUse& use) { return use.first_row == rows.first_row; });
    const bool is_wanted = sequence.request.return_images && begin == span.first_token;
    if (is_wanted || (!rows.is_written && !is_listed)) {
      images.push_back({.sequence = &sequence,
                        .image = i,
                        .content = span.content,
                        .first_row = rows.first_row,
                        .is_written = rows.is_written || is_listed});
    }
    const auto at = static_cast<std::size_t>(first_token + begin - sequence.computed);
    batch.embedding_rows.resize(at, -1);
    for (std::int64_t token = begin; token < end; ++token)
      batch.embedding_rows.push_back(static_cast<std::int32_t>(rows.first_row + token - span.first_token));
  }
}

// Adds the row from which a token is sampled. If `ahead` is 0, the token is the sequence's next one. Otherwise it is
// the token `ahead` places after the next one.
void ScheduledBatch::append_sampled_row(Sequence& sequence, std::int64_t ahead, std::int64_t vocab_size) {
  const SamplingParams& params = sequence.request.sampling;
  const std::size_t row = sampling.size();
  sampling.push_back({.temperature = static_cast<float>(params.temperature),
                      .top_k = static_cast<std::int32_t>(std::min<std::int64_t>(params.top_k, INT32_MAX)),
                      .top_p = static_cast<float>(params.top_p),
                      .min_p = static_cast<float>(params.min_p),
                      .seed = sequence.seed,
                      .choice = params.choice,
                      .position = static_cast<std::int32_t>(std::ssize(sequence.tokens) + ahead)});
  const std::int64_t number = sequence.generated() + ahead;
  if (sequence.edits && sequence.edits->any(number)) {
    if (edits.starts.empty()) edits.starts.assign(row + 1, 0);
    edits.starts.resize(row + 1, static_cast<std::int32_t>(edits.ids.size()));
    sequence.edits->append(number, edits);
    edits.starts.push_back(static_cast<std::int32_t>(edits.ids.size()));
  }
  if (sequence.matcher || !sequence.allowed.empty()) {
    const auto words = static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size));
    edits.masked_rows.push_back(static_cast<std::int32_t>(row));
    edits.masks.resize(edits.masks.size() + words);
    const std::span<std::uint32_t> mask = std::span(edits.masks).last(words);
    if (sequence.matcher && !sequence.drafts.empty()) {
      if (ahead == 0) draft_masks_.push_back({.sequence = &sequence, .first_word = edits.masks.size() - words});
    } else if (sequence.matcher) {
      sequence.matcher->fill_mask(mask);
    } else {
      std::copy(sequence.allowed.begin(), sequence.allowed.end(), mask.begin());
    }
  }
  if (ahead == 0 && sequence.reasoning) {
    if (const std::optional<TokenId> forced = sequence.reasoning->forced()) allow_only(*forced, row, vocab_size);
  }
  if (sequence.request.logprobs.output) {
    wants_logprobs = true;
    top_logprobs = std::max(top_logprobs, *sequence.request.logprobs.output);
  }
}

void ScheduledBatch::allow_only(TokenId token, std::size_t row, std::int64_t vocab_size) {
  const auto words = static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size));
  edits.masked_rows.push_back(static_cast<std::int32_t>(row));
  edits.masks.resize(edits.masks.size() + words);
  const auto bit = static_cast<std::size_t>(token.value());
  edits.masks[edits.masks.size() - words + bit / 32] = 1U << (bit % 32);
}

void ScheduledBatch::fill_draft_masks(std::int64_t vocab_size) {
  const auto words = static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size));
  for (const DraftMasks& masks : draft_masks_) {
    const std::vector<TokenId>& drafts = masks.sequence->drafts;
    masks.sequence->matcher->fill_masks(drafts,
                                        std::span(edits.masks).subspan(masks.first_word, (drafts.size() + 1) * words));
  }
}

void ScheduledBatch::append_prompt_rows(Sequence& sequence, Entry& entry) {
  const bool score = sequence.request.score;
  if (!score && !sequence.request.logprobs.prompt) return;
  // Log-probabilities leave out the prompt's last row, which predicts no token of the prompt.
  const std::int64_t end = sequence.prompt_tokens() - (score ? 0 : 1);
  entry.first_prompt_row = std::max({entry.position, sequence.first_wanted(), sequence.rows_delivered});
  entry.prompt_rows =
      std::max<std::int64_t>(std::min(entry.position + entry.new_tokens, end) - entry.first_prompt_row, 0);
  entry.wanted_from = static_cast<std::int64_t>(prompt_rows_.size());
  for (std::int64_t row = entry.first_prompt_row; row < entry.first_prompt_row + entry.prompt_rows; ++row) {
    prompt_rows_.push_back(static_cast<std::int32_t>(entry.first_token + row - entry.position));
    const auto next = static_cast<std::size_t>(row + 1);
    prompt_targets_.push_back(next < sequence.request.prompt.size() ? sequence.tokens[next] : TokenId(0));
  }
  if (score || entry.prompt_rows == 0) return;
  wants_logprobs = true;
  top_logprobs = std::max(top_logprobs, *sequence.request.logprobs.prompt);
}

void ScheduledBatch::append_hidden_rows(const Sequence& sequence, Entry& entry) {
  if (!sequence.wants_hidden()) return;
  const std::int64_t end = entry.position + entry.new_tokens;
  const bool has_last = end == sequence.prompt_tokens();
  std::int64_t first = entry.position;
  std::int64_t count = entry.new_tokens;
  if (!sequence.wants_all_hidden() && sequence.request.pooling == Pooling::kFirst) {
    count = first == 0 ? 1 : 0;
  } else if (!sequence.wants_all_hidden()) {
    first = end - 1;
    count = has_last ? 1 : 0;
  }
  entry.hidden_count = count;
  entry.first_hidden = first;
  entry.hidden_from = std::ssize(hidden_rows);
  for (std::int64_t position = first; position < first + count; ++position)
    hidden_rows.push_back(static_cast<std::int32_t>(entry.first_token + position - entry.position));
}

void ScheduledBatch::finish() {
  finish_rows(batch, rope_positions);
  if (!batch.draft_lens.empty()) batch.draft_lens.resize(batch.query_lens.size(), 0);
  if (!batch.accepted_drafts.empty()) batch.accepted_drafts.resize(batch.query_lens.size(), 0);
  if (!batch.adapter_slots.empty()) batch.adapter_slots.resize(batch.input_ids.size(), -1);
  if (!batch.embedding_rows.empty()) batch.embedding_rows.resize(batch.input_ids.size(), -1);
  const auto sampled = static_cast<std::int64_t>(sampling.size());
  for (Entry& entry : entries) entry.wanted_from += sampled;
  batch.wanted_rows.insert(batch.wanted_rows.end(), prompt_rows_.begin(), prompt_rows_.end());
  if (wants_logprobs) {
    logprob_targets.assign(sampling.size(), TokenId(0));
    logprob_targets.insert(logprob_targets.end(), prompt_targets_.begin(), prompt_targets_.end());
  }
  if (!edits.starts.empty()) edits.starts.resize(sampling.size() + 1, static_cast<std::int32_t>(edits.ids.size()));
}

}  // namespace tessera
