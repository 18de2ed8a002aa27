// The ranks of a node other than node 0: threads of this process that follow rank 0 through a connection.
#pragma once

#include <chrono>
#include <memory>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/net/node_group.h"
#include "tessera/runner/ranks/rank_threads.h"

namespace tessera {

struct RankNodeOptions {
  std::shared_ptr<NodeGroup> nodes{};  // joined and not started; node 0 is another process
  RankLayout layout{};                 // layout of the ranks of all nodes; with several stages, a node has whole stages
  std::chrono::milliseconds limit{300'000};  // limit of every wait for another rank
  MakeRankHost host{};
};

// Follows rank 0 until node 0 ends. Returns ok then, or kDeviceLost if node 0 is lost.
Status follow_node_0(const RankNodeOptions& options);

}  // namespace tessera
