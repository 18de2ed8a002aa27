// Drafts by a model's next-token layer (model/layers/draft.h), for all sequences of a forward at once.
//
// After each forward the layer reads the forward's tokens. It reads each computed row together with the next token, so
// it has keys and values at every position where the model has them. The last row of a decoding sequence gives the
// sequence's first draft. Further drafts are made when the next step is scheduled, since their number is only known
// then. A row behind a refused draft is overwritten when the layer reads the tokens that were chosen instead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

class LayerDrafts {
 public:
  // Precondition: the runner's model has a next-token layer. Both arguments must outlive this object.
  LayerDrafts(ModelRunner& runner, const CacheManager& cache) : runner_(runner), cache_(cache) {}

  // Reads the tokens of a forward whose results were collected, and sets its sequences' first drafts. Precondition: no
  // other forward has run since. An error is logged; these sequences then have no drafts in the next step.
  void read(const ScheduledBatch& batch);
  // Fills in the further drafts of the batch's sequences. Precondition: no forward has run since read(). An error is
  // logged; the drafts are then left as tokens that the model is unlikely to choose.
  void complete(ScheduledBatch& batch);

 private:
  struct Row {
    ScheduledBatch::Entry* entry;
    std::int32_t hidden;  // row of draft_hidden
  };
  void clear();
  // Runs the layer on the appended rows. Sets drafts_ to the wanted rows' tokens.
  Status run();
  // Makes draft number `draft` for all sequences that have so many drafts.
  Status complete(std::int64_t draft, ScheduledBatch& batch);

  ModelRunner& runner_;
  const CacheManager& cache_;
  ForwardBatch batch_;
  RopeAxes rope_positions_;
  std::vector<std::int32_t> hidden_rows_;
  std::vector<TokenId> drafts_;
  std::vector<Sequence*> wanting_;  // the sequence of each wanted row
  std::vector<Row> rows_;           // entries that still draft
};

}  // namespace tessera
