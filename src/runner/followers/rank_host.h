// The interface through which a rank other than 0 gets what it needs to follow rank 0: the limits that fit its device,
// and the runner for its part of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/ranks/rank_threads.h"

namespace tessera {

class ModelRunner;

// Plans and loads the part of the model that a rank other than 0 runs. The object is created, used and destroyed on the
// rank's own thread.
class RankHost {
 public:
  virtual ~RankHost() = default;
  // Opens the device if it is not open yet. Returns the limits that fit the device if `max_running` requests run at
  // once. If `max_running` is 0, uses the number in the host's options.
  virtual Result<RankLimits> plan(std::int64_t max_running) = 0;
  // Loads the weights and returns the runner, which the host owns. `communicator` must outlive the host.
  virtual Result<ModelRunner*> load(const RankLimits& agreed, Communicator& communicator) = 0;
};

// A function that makes the host of a rank. It is called on the rank's thread.
using MakeRankHost = std::function<std::unique_ptr<RankHost>(int rank)>;

// Returns the function that each rank other than 0 runs on its thread. The returned function makes the rank's host and
// follows rank 0 (rank_follower.h). Every message gets an answer, even if the host could not be made.
RankBody following(MakeRankHost make_host);

}  // namespace tessera
