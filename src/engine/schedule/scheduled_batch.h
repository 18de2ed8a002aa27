// One forward as it is scheduled: its rows, and the sequences to which they belong.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/engine/schedule/sequence.h"
#include "tessera/engine/stats/graph_use.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/logit_edits.h"
#include "tessera/runner/memory/input_buffers.h"

namespace tessera {

struct ScheduledBatch {
  struct Entry {
    Sequence* sequence;        // null once the sequence was removed
    std::int64_t new_tokens;   // tokens of the sequence in this forward
    std::int64_t first_token;  // index of the first new token in the forward
    std::int64_t position;     // position of the first new token in the sequence
    std::int64_t row;          // index of the sampled row among the wanted rows; -1: none is sampled
    std::int64_t next_token;   // index of the sampled token in the sequence
    std::int64_t drafts;       // number of drafts after the new tokens; their rows are sampled too, after `row`
    // The number of wanted rows for the prompt's log-probabilities or logits. They belong to consecutive tokens of the
    // sequence, the first of which is first_prompt_row.
    std::int64_t prompt_rows;
    std::int64_t first_prompt_row;
    std::int64_t wanted_from;  // index in wanted_rows of the row of token first_prompt_row
    // The number of wanted hidden states. They belong to consecutive tokens of the sequence, the first of which is
    // first_hidden.
    std::int64_t hidden_count;
    std::int64_t first_hidden;
    std::int64_t hidden_from;  // index in hidden_rows of the state of token first_hidden
  };
  // An image whose rows this forward is the first to need, or whose rows the request wants returned.
  struct ImageUse {
    Sequence* sequence;  // valid until the forward is submitted
    std::size_t image;   // the image's index among the sequence's images
    Hash128 content;
    std::int64_t first_row;
    bool is_written;  // whether an earlier forward or an earlier entry of `images` writes the rows
  };
  ForwardBatch batch;
  RopeAxes rope_positions;
  std::vector<ImageUse> images;
  std::vector<SampleRow> sampling;  // parameters of the sampled rows, which are the first wanted rows
  LogitEdits edits;
  std::vector<TokenId> logprob_targets;  // one for each wanted row, if wants_logprobs
  std::vector<Entry> entries;
  std::vector<std::int32_t> hidden_rows;  // ascending indices of the forward's tokens with wanted hidden states
  bool wants_logits = false;
  bool wants_logprobs = false;
  int top_logprobs = 0;
  std::int64_t num_decoding = 0;        // number of entries that decode
  std::optional<DraftSaving> saving;    // what its drafts are expected to save; none: unknown, or no request may draft
  bool waits_for_drafts_alone = false;  // what Scheduler::waits_for_drafts_alone() said when the drafts were chosen
  Decision decision{};                  // set once the forward was submitted

  // Returns draft number `draft` (from 0) of the entry.
  TokenId draft_of(const Entry& entry, std::int64_t draft) const {
    return batch.input_ids[static_cast<std::size_t>(entry.first_token + entry.new_tokens + draft)];
  }

  ForwardPhase phase() const {
    if (num_decoding == 0) return ForwardPhase::kPrefill;
    return num_decoding == std::ssize(entries) ? ForwardPhase::kDecode : ForwardPhase::kMixed;
  }

  // Empties the batch for a model with `num_cache_groups` cache groups. Keeps the batch's memory for reuse.
  void clear(std::size_t num_cache_groups);
  // Adds the next `count` tokens of `sequence`, and its drafts. Precondition: the sequence holds the pages for these
  // tokens and drafts, and the rows of the tokens' images.
  void append(Sequence& sequence, std::int64_t count, const CacheManager& cache, std::int64_t vocab_size);
  // Returns whether the host must know the drafts before the forward, because fill_draft_masks() needs them.
  bool has_draft_masks() const { return !draft_masks_.empty(); }
  // Fills in the masks of sequences with a grammar and drafts. Call it once the drafts are known.
  void fill_draft_masks(std::int64_t vocab_size);
  // Call it once all sequences are added. The batch lists the rows from which a token is sampled. Appends to this list
  // the other wanted rows, from which no token is sampled. Fills up, with default values, the lists to which only some
  // sequences have added values.
  void finish();

 private:
  void append_embeddings(const Sequence& sequence, std::int64_t kv_len);
  void append_images(Sequence& sequence, std::int64_t kv_len);
  void append_sampled_row(Sequence& sequence, std::int64_t ahead, std::int64_t vocab_size);
  // Adds a mask to a sampled row that allows this token alone.
  void allow_only(TokenId token, std::size_t row, std::int64_t vocab_size);
  void append_prompt_rows(Sequence& sequence, Entry& entry);
  void append_hidden_rows(const Sequence& sequence, Entry& entry);
  // The masks of one sequence's sampled rows. These masks are adjacent.
  struct DraftMasks {
    Sequence* sequence;
    std::size_t first_word;  // index in edits.masks of the first mask's first word
  };
  std::vector<DraftMasks> draft_masks_;
  std::vector<std::int32_t> prompt_rows_;
  std::vector<TokenId> prompt_targets_;
};

}  // namespace tessera
