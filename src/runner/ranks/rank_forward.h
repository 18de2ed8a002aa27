// Packs a forward into a message from rank 0 to the other ranks. The message contains all inputs of rank 0's runner,
// and rank 0's Decision. The Decision says, for example, which runner runs the forward and at which size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/message.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/forward_inputs.h"
#include "tessera/runner/ranks/rank_batch.h"

namespace tessera {

// Rank 0's end of the stream of forwards. Allocates memory only for a batch that is larger than all earlier ones.
class ForwardPacker {
 public:
  void pack(const ForwardInputs& inputs, const Decision& decision, MessageWriter& to);

 private:
  BatchPacker batch_;
};

// The receiver's end of the stream. Its contents are valid until the next unpack(). The values of embedding writes
// point into the message.
class ReceivedForward {
 public:
  // Unpacks the next forward. After an error the sender and the receiver may have different page tables, so the ranks
  // cannot continue.
  Status unpack(MessageReader& from);

  const Decision& decision() const { return decision_; }
  bool wants_logits() const { return wants_logits_; }
  bool wants_hidden() const { return wants_hidden_; }
  // Returns the inputs. `logits` and `hidden_states` are the caller's buffers for those outputs, if they are wanted.
  ForwardInputs inputs(std::span<float> logits, std::span<float> hidden_states) const;

 private:
  Status unpack_decision(MessageReader& from);

  Decision decision_;
  bool wants_logits_ = false;
  bool wants_hidden_ = false;
  bool force_eager_ = false;
  bool replay_graphs_ = true;
  bool has_edits_ = false;
  int top_logprobs_ = 0;
  ReceivedBatch batch_;
  RopeAxes rope_positions_;
  std::vector<SampleRow> sampling_;
  LogitEdits edits_;
  std::vector<TokenId> logprob_targets_;
  std::vector<std::int32_t> hidden_rows_;
};

}  // namespace tessera
