// Runs the ranks of a node other than node 0. They are threads of this process, and follow rank 0 through a connection.
#pragma once

#include <chrono>
#include <memory>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/net/node_group.h"
#include "tessera/runner/ranks/rank_threads.h"

namespace tessera {

struct RankNodeOptions {
  std::shared_ptr<NodeGroup> nodes{};  // the group has joined but not started, and node 0 is another process
  // The ranks of all nodes. If the pipeline has several stages, each node runs whole stages.
  RankLayout layout{};
  std::chrono::milliseconds limit{300'000};  // limit of every wait for another rank
  RankBody body{};                           // the function that each rank runs
};

// Follows rank 0 until node 0 ends the group, and then returns ok. Returns kDeviceLost if node 0 is lost.
Status follow_node_0(const RankNodeOptions& options);

}  // namespace tessera
