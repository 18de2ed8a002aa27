// Follows rank 0 on another rank: carries out rank 0's messages in order and answers them. A follower makes no
// decisions.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/model/adapters/adapter_share.h"
#include "tessera/runner/followers/followed_forwards.h"
#include "tessera/runner/followers/rank_host.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_drafts.h"
#include "tessera/runner/ranks/rank_order.h"

namespace tessera {

class RankFollower {
 public:
  // `channel` must outlive this object.
  RankFollower(int rank, RankChannel& channel, std::unique_ptr<Communicator> communicator,
               std::unique_ptr<RankHost> host);

  // Runs until the channel is closed. Called on the thread that created this object.
  void run();

 private:
  Status carry_out(const RankChannel::Message& message, RankAnswer& answer);
  Status carry_out(const RankOrder& order, RankAnswer& answer);
  Status make_plan(std::int64_t max_running, RankAnswer& answer);
  Status load(MessageReader& from);
  Status encode(MessageReader& from);
  Status read_drafts(MessageReader& from, RankAnswer& answer);
  Status draft(MessageReader& from);
  // Returns whether this rank has the next-token layer or draft model. In a pipeline only the last stage has it.
  bool drafts() const { return runner_->model().graphs.draft.has_value(); }
  Status write_adapter(MessageReader& from, std::shared_ptr<const void> beside);
  Status drop(GraphRunner& runner, std::int64_t size);
  Status verify_here();
  Status soak_here(const RankOrder& order);

  const int rank_;
  RankChannel& channel_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<RankHost> host_;
  ModelRunner* runner_ = nullptr;             // owned by the host; null before kLoad
  std::optional<FollowedForwards> forwards_;  // empty before kLoad
  ReceivedDraftInputs draft_inputs_;
  // For each adapter slot, this rank's part of the adapter that was written to it last. The part is kept, because the
  // stream may still be copying it.
  std::map<std::int64_t, std::shared_ptr<const AdapterShare>> written_;
};

}  // namespace tessera
