// Runs a next-token layer (multi-token prediction, model/layers/draft.h) between two forwards, on all ranks of the
// model. A draft model runs in the same way, but its rows read no hidden states of the model.
//
//   forward   writes the hidden states of its rows to draft_hidden
//   read      runs the body on the next token of each row, and writes the rows' hidden states to draft_hidden
//   draft     runs the head on some of these hidden states, and writes the first drafts to last_ids
//   read      runs the body on the first drafts, and then the head, which makes the second drafts, and so on
//   fetch     copies the drafts to the host
//
// A read with DraftInputs::first_id also drafts. If it has only a few rows, it replays one graph.
//
// Drafts stay on the device. The rows of a later read(), or of the forward that verifies the drafts, refer to them
// through ForwardBatch::input_rows.
//
// Rank 0 sends each call to the other ranks and does its own part (LocalDrafts) at the same time. Every rank drafts the
// same tokens, because every rank computes the logits of all ids. Rank 0 does not wait for the other ranks between
// these calls. settle() waits for them. An error names the rank that it came from. The ranks can continue after every
// error except kDeviceLost.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/runner/capture/dispatcher.h"
#include "tessera/runner/capture/replay_failures.h"
#include "tessera/runner/capture/size_capture.h"
#include "tessera/runner/dispatch/forward_end.h"
#include "tessera/runner/draft_inputs.h"
#include "tessera/runner/drafts/local_drafts.h"
#include "tessera/runner/launcher.h"
#include "tessera/runner/ranks/sent_drafts.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

class DraftStep {
 public:
  // All arguments must outlive this object.
  DraftStep(RunnerParts& parts, Launcher& launcher, SizeCapture& captures, const Dispatcher& dispatcher)
      : parts_(parts),
        captures_(captures),
        dispatcher_(dispatcher),
        here_(parts, launcher),
        sent_(parts.model.options) {}

  // read() and draft() call LocalDrafts::read() and LocalDrafts::draft() on all ranks. fetch() runs on this rank only.
  // All three may return the error of an earlier call.
  Status read(const DraftInputs& inputs);
  Status draft(const DraftRows& from, std::span<float> logits = {});
  // Returns whether read() drafts from the batch in one graph. With CaptureMode::kLazy, first captures the size that
  // the batch needs, on all ranks. A size whose replays failed three times in a row has lost its graph, so it does not
  // count.
  Result<bool> has_graph(const ForwardBatch& batch);
  // Calls settle(), then copies the first `count` ids of last_ids to the host. fetched() returns them once the stream
  // has completed the copy.
  Status fetch(std::int64_t count);
  std::span<const TokenId> fetched() const { return here_.fetched(); }
  // Waits until every rank has enqueued its part of all calls. Returns the most serious error of all ranks
  // (RankGroup::cause). Call settle() or fetch() before the ranks do anything else together.
  Status settle() { return settle(ok_status()); }

  // Returns this rank's LocalDrafts. On a rank that follows rank 0, RankFollower calls the functions of LocalDrafts
  // directly.
  LocalDrafts& here() { return here_; }

 private:
  // Sends a call to the other ranks, if this rank leads them.
  template <class Call>
  Status send(const Call& call);
  // Returns `own`, which is this rank's status of the newest call. If it is an error, settles first.
  Status settle_failed(const Status& own) { return own.ok() ? own : settle(own); }
  // Waits for the calls that were sent. `own` is this rank's status of the newest call.
  Status settle(const Status& own);
  // Counts failed replays, and drops the graphs of sizes whose replays failed three times in a row. `end` combines the
  // outcomes, on all ranks, of all calls that were made after the previous run of ended().
  Status ended(const ForwardEnd& end);

  RunnerParts& parts_;
  SizeCapture& captures_;
  const Dispatcher& dispatcher_;
  LocalDrafts here_;
  SentDrafts sent_;
  std::vector<std::int64_t> replayed_;  // sizes replayed since the last call of ended()
  ReplayFailures<std::int64_t> failures_;
};

}  // namespace tessera
