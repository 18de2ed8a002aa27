// Runs forwards on a rank that follows rank 0, exactly as rank 0 decided them. It captures nothing and retries nothing.
// RankFollower passes the messages.
//
// Threads: the rank's thread.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/net/message.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_forward.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/steps/local_forwards.h"

namespace tessera {

class FollowedForwards {
 public:
  // Both arguments must outlive this object.
  FollowedForwards(const RunnerParts& parts, LocalForwards& forwards);

  // Runs a forward. If the ranks form a pipeline on a host device, also collects the forward (collects_as_it_runs in
  // step_ways.h). Returns kDeviceLost if the message cannot be read. Later messages contain only the differences from
  // earlier ones, so the rank could not read them either.
  Status run(MessageReader& from, RankAnswer& answer);
  // Collects the oldest forward, and puts the digest of its results into the answer.
  Status collect(RankAnswer& answer);
  // Drops the newest forward, which failed on some rank.
  Status discard();

 private:
  Status collect_results(RankAnswer& answer);

  const RunnerParts& parts_;
  LocalForwards& forwards_;
  const bool collects_at_once_;
  ReceivedForward received_;
  std::vector<float> logits_;
  std::vector<float> hidden_states_;
  std::vector<ForwardEnd> in_flight_;  // how each forward in flight ended on this rank, oldest first
};

}  // namespace tessera
