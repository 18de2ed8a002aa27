// Drafts by a model's next-token layer (model/layers/draft.h), for all sequences of a forward at once.
//
// After each forward the layer reads its tokens: each computed row continues with the token behind it, so that the
// layer has keys and values wherever the model has. The last row of a sequence that decodes gives its first draft. The
// further drafts are made when the next step is scheduled, as only then it is known how many there are. A row behind a
// refused draft is overwritten when the layer reads the tokens that were chosen instead.
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
  // The runner's model has a next-token layer. Both must outlive this object.
  LayerDrafts(ModelRunner& runner, const CacheManager& cache) : runner_(runner), cache_(cache) {}

  // Reads the tokens of a forward whose results were collected, and sets its sequences' first drafts. Precondition: no
  // other forward has run since. After an error, which is logged, they have no drafts in the next step.
  void read(const ScheduledBatch& batch);
  // Fills in the further drafts of the batch's sequences. Precondition: no forward has run since read(). After an
  // error, which is logged, they are left as tokens that the model hardly chooses.
  void complete(ScheduledBatch& batch);

 private:
  struct Row {
    ScheduledBatch::Entry* entry;
    std::int32_t hidden;  // row of draft_hidden
  };
  void clear();
  // Runs the layer on the appended rows. Sets drafts_ to the wanted rows' tokens.
  Status run();
  // Makes the drafts of number `draft` of the sequences that have so many.
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
