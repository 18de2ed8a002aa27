// Packs the inputs of a next-token layer (multi-token prediction) or a draft model into messages between ranks
// (drafts/draft_step.h). The inputs are the rows that the layer or draft model reads, and the rows from whose hidden
// states its head drafts tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/message.h"
#include "tessera/runner/draft_inputs.h"
#include "tessera/runner/ranks/rank_batch.h"

namespace tessera {

// Rank 0's end of a stream that carries the rows for the body. Allocates memory only for a batch that is larger than
// all earlier ones.
class DraftPacker {
 public:
  void pack(const DraftInputs& inputs, MessageWriter& to);

 private:
  BatchPacker batch_;
};

// The receiver's end of the stream. Its contents are valid until the next unpack().
class ReceivedDraftInputs {
 public:
  // Unpacks the next rows. After an error the sender and the receiver may have different page tables, so the ranks
  // cannot continue.
  Status unpack(MessageReader& from);
  DraftInputs inputs() const {
    return {.batch = batch_.batch(), .rope_positions = rope_positions_, .rows = rows_, .first_id = first_id_};
  }

 private:
  ReceivedBatch batch_;
  RopeAxes rope_positions_;
  std::vector<std::int32_t> rows_;
  std::optional<std::int64_t> first_id_;
};

void pack_draft_rows(const DraftRows& rows, MessageWriter& to);
// Unpacks the rows from which the head drafts. The result points into the message.
Result<DraftRows> unpack_draft_rows(MessageReader& from);

}  // namespace tessera
