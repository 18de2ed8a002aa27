// What a rank other than 0 needs to follow rank 0: the plan and the runner of its part of the model.
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

// The work of a rank other than 0. Created, used and destroyed on the rank's own thread.
class RankHost {
 public:
  virtual ~RankHost() = default;
  // Opens the device if it is not open yet. Returns the limits that fit the device with `max_requests` requests; 0
  // means the number in the host's options.
  virtual Result<RankLimits> plan(std::int64_t max_requests) = 0;
  // Loads the weights and returns the runner, which the host owns. `communicator` must outlive the host.
  virtual Result<ModelRunner*> load(const RankLimits& agreed, Communicator& communicator) = 0;
};

// Makes the host of a rank; called on the rank's thread.
using MakeRankHost = std::function<std::unique_ptr<RankHost>(int rank)>;

// Returns what each rank other than 0 does on its thread: it makes its host and follows rank 0 (rank_follower.h). Every
// message gets an answer, even if the host could not be made.
RankBody following(MakeRankHost make_host);

}  // namespace tessera
