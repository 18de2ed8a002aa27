// Runs the ranks of a node other than node 0: threads of this process that follow rank 0 through a connection.
#pragma once

#include <chrono>
#include <memory>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/net/node_group.h"
#include "tessera/runner/ranks/rank_threads.h"

namespace tessera {

struct RankNodeOptions {
  std::shared_ptr<NodeGroup> nodes{};  // has joined but not started; node 0 is another process
  // The ranks of all nodes; if there are several stages, each node has whole stages.
  RankLayout layout{};
  std::chrono::milliseconds limit{300'000};  // limit of every wait for another rank
  RankBody body{};                           // what each rank does
};

// Follows rank 0 until node 0 ends the group, and then returns ok. Returns kDeviceLost if node 0 is lost.
Status follow_node_0(const RankNodeOptions& options);

}  // namespace tessera
