// Makes drafts for all sequences of a forward at once, with the model's next-token layer (multi-token prediction,
// model/layers/draft.h) or with a draft model (model/families/draft_model.h).
//
// After each forward the layer's body reads the forward's tokens. It reads each computed row together with the next
// token, so it has keys and values at every position where the model has them. Drafts are made when the next step is
// scheduled, since their number is only known then. The head computes the first draft from a sequence's last row. For
// each further draft, the body runs on the draft before it. The keys and values of refused drafts are overwritten when
// the layer reads the tokens that the model chose instead.
//
// Neither a layer nor a draft model reads a forward's rows while no request drafts. A later request may find the pages
// of these rows in the prefix cache (DraftKeys). In that case a draft model reads the rows before it drafts. A layer
// cannot do so, because the rows' hidden states are gone. If the layer lacks such rows and drafts badly for the
// request, this does not count as evidence against drafting.
//
// A draft model reads each row with the row's own token and no hidden state, so its keys and values depend on the same
// tokens as the model's. When drafts are made, it first reads the sequence's last token, and its head then gives the
// first draft. If all of its drafts were kept, the last of them is the only one that it has not read yet.
//
// One graph can read the rows of a forward and also run the head, so that the first drafts are ready at once. This
// happens if the forward has few rows and no prompts, and the layer made drafts for at least one of its requests. Each
// further draft is one graph too (DraftStep::has_graph).
//
// Drafts stay on the device, where the forward that checks them reads them. The host gets them together with that
// forward's results. In a pipeline the host waits for the drafts and passes them to the first stage.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/steps/draft_keys.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

class LayerDrafts {
 public:
  // Precondition: the runner's model has a next-token layer or a draft model. Both arguments must outlive this object.
  LayerDrafts(ModelRunner& runner, const CacheManager& cache);

  // Makes the layer or draft model read the tokens of a forward, except those of sequences that end with it. A layer
  // also reads the tokens that the forward sampled (`sampled`, StepOutputs::sampled). Records the rows from which the
  // forward's sequences get their next drafts. May overwrite the ids that the forward left on the device (last_ids).
  // Preconditions: write_ids() was called, the forward's results were not added to its sequences yet, and no other
  // forward has run since that forward. Logs an error instead of returning it. After an error, the forward's sequences
  // have no drafts in the next step.
  void read(const ScheduledBatch& batch, std::span<const TokenId> sampled);
  // Records that the tokens of a forward are not read. Call this function for each collected forward that is not passed
  // to read().
  void skip(const ScheduledBatch& batch);
  // Makes the layer's drafts for the batch. They stay on the device, where the batch's forward reads them. Waits for
  // the drafts if the host needs them before the forward. Precondition: no forward has run since read(). Logs an error
  // instead of returning it. After an error, every draft stays token 0, which the model is unlikely to choose.
  void complete(ScheduledBatch& batch);
  // Copies the ids of the drafts that complete() made into the batch's input_ids. Precondition: the batch's forward was
  // collected.
  void write_ids(ScheduledBatch& batch) const;

  // Returns the time in milliseconds that the layer takes to make one draft for every sequence. Returns 0 before the
  // first measurement.
  double draft_ms() const { return draft_ms_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Row {
    ScheduledBatch::Entry* entry;
    std::int32_t hidden;  // index of the row of draft_hidden that gives the next draft
    // Index in last_ids of the newest draft. Before the first draft: the index of the draft that read() may have made,
    // or -1 for a draft model.
    std::int32_t id;
  };
  void clear();
  // Returns whether one graph should read the rows of batch_ and make the first drafts. One graph is worthwhile if the
  // layer made drafts for `batch`.
  Result<bool> drafts_at_once(const ScheduledBatch& batch);
  // The tokens that a sequence has once an entry's results are collected, unless it ends.
  struct Tokens {
    const ScheduledBatch::Entry& entry;
    std::span<const TokenId> sampled;  // the tokens that the forward sampled
    std::int64_t kept;                 // number of drafts that the results accept
    // Returns the number of computed tokens.
    std::int64_t computed() const { return entry.sequence->computed + kept; }
    // Returns the number of known tokens.
    std::int64_t count() const;
    TokenId at(std::int64_t position) const;
  };
  // Adds the rows of the entry's tokens that the layer has not read.
  void add_layer_rows(const Tokens& tokens);
  // Adds rows that the draft model has not read, in order from the first unread row. Adds at most as many rows as the
  // entry has tokens, plus `most_earlier`. Returns the number of added rows minus the number of the entry's tokens, or
  // 0 if this difference is negative.
  std::int64_t add_model_rows(const ScheduledBatch& batch, const Tokens& tokens, std::int64_t most_earlier);
  // Reads the rows of batch_. If `first_id` is set, also makes drafts from the wanted rows of batch_, and writes their
  // ids to last_ids from element `first_id` on.
  Status run_body(std::optional<std::int64_t> first_id);
  Status make(ScheduledBatch& batch);
  // Makes draft number `draft`, counted from 0, for every sequence in rows_.
  Status make(std::int64_t draft, ScheduledBatch& batch);
  // Uses the first drafts that read() made. Does nothing and returns false if read() made none, or if last_ids has no
  // room for the drafts that follow them.
  bool take_first(ScheduledBatch& batch);
  // Adds to batch_ the row from which draft number `draft` is made for the sequence of `row`.
  void add_draft_row(const Row& row, std::int64_t draft);
  // Records that element `id` of last_ids is draft number `draft` for the sequence of `row`.
  static void place(Row& row, std::int32_t id, std::int64_t draft, ScheduledBatch& batch);
  // Returns the entry's row before its first draft. Precondition: has_layer_drafts(entry).
  Row first_row(ScheduledBatch::Entry& entry) const;
  // Removes from rows_ the sequences that get no further drafts after draft number `draft`.
  void drop_finished(std::int64_t draft);

  ModelRunner& runner_;
  const CacheManager& cache_;
  bool is_model_;  // true: a draft model makes the drafts; false: a layer
  DraftKeys keys_;
  ForwardBatch batch_;
  RopeAxes rope_positions_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<std::int32_t> read_rows_;  // [Drafter::layer_row()]: row of draft_hidden that read() wrote
  std::vector<Row> rows_;                // entries that still need drafts
  std::int64_t first_drafts_ = 0;        // first drafts that read() has made; they are the first elements of last_ids
  bool complete_ = false;                // whether the last complete() made all drafts of its batch
  std::int32_t made_ = 0;                // number of this step's drafts so far, which are in last_ids
  std::int64_t steps_ = 0;               // number of steps with drafts
  double draft_ms_ = 0;
};

}  // namespace tessera
