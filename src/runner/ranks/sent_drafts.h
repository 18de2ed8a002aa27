// Sends the calls of a DraftStep (drafts/draft_step.h) to the other ranks, and collects how they ended. A runner
// without others that follow it sends nothing, and its own calls end as they ended here. During an order
// (RankGroup::together) all ranks make the same calls, so nothing is sent either.
//
// Threads: the runner's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/dispatch/forward_end.h"
#include "tessera/runner/draft_inputs.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

class SentDrafts {
 public:
  // The communicator and the group of `options` must outlive this object.
  explicit SentDrafts(const RunnerOptions& options) : communicator_(options.communicator), ranks_(options.ranks) {}

  // Returns whether no further call may be sent before settle(). Otherwise answers to earlier calls could be lost.
  bool is_full() const;
  Status send(const DraftInputs& inputs);
  Status send(const DraftRows& rows);
  // Waits until every rank has enqueued its part of all sent calls. Returns the most serious failure of all ranks
  // (RankGroup::cause). `own` is the end of this rank's newest call. If that call failed, ends the collective
  // operations in which the other ranks wait for it. Returns an error if the group has ended.
  Result<ForwardEnd> settle(const ForwardEnd& own);

 private:
  bool sends() const;

  Communicator* const communicator_;  // null if there is one rank
  RankGroup* const ranks_;            // null if no rank follows this one
  std::vector<std::uint64_t> sent_;   // numbers of the messages whose answers are still to be checked
};

}  // namespace tessera
