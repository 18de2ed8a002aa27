// Makes several nodes of a group of ranks within one process, for tests. The nodes are connected by TCP, like separate
// processes.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/net/node_group.h"
#include "tessera/net/testing/free_port.h"

namespace tessera::testing {

// All nodes of the group.
struct Nodes {
  std::vector<std::shared_ptr<NodeGroup>> groups;
  std::vector<std::unique_ptr<Communicator>> ranks;  // the ranks of all nodes, in rank order

  ~Nodes() {
    for (const auto& group : groups) group->end();
  }
  Communicator& rank(int r) { return *ranks[static_cast<std::size_t>(r)]; }
};

// Makes `nodes` nodes, which have joined the group but are not started.
inline std::vector<std::shared_ptr<NodeGroup>> join_nodes_here(int nodes) {
  const NodeGroupOptions how{.address = {"127.0.0.1", free_port()}, .join_limit = std::chrono::milliseconds(20'000)};
  std::vector<std::future<Result<std::shared_ptr<NodeGroup>>>> joining;
  for (int node = 0; node < nodes; ++node)
    joining.push_back(
        std::async(std::launch::async, [=] { return NodeGroup::join({.nodes = nodes, .node = node}, how); }));
  std::vector<std::shared_ptr<NodeGroup>> joined;
  for (auto& one : joining) joined.push_back(one.get().value());
  return joined;
}

// Makes the nodes of a group. `make_ranks(group)` makes the communicators of one node's ranks.
template <class MakeRanks>
std::unique_ptr<Nodes> make_nodes_of(int nodes, const MakeRanks& make_ranks) {
  auto made = std::make_unique<Nodes>();
  for (std::shared_ptr<NodeGroup>& group : join_nodes_here(nodes)) {
    made->groups.push_back(std::move(group));
    for (auto& rank : make_ranks(made->groups.back())) made->ranks.push_back(std::move(rank));
    made->groups.back()->start();
  }
  return made;
}

inline std::unique_ptr<Nodes> make_nodes(int nodes, int ranks,
                                         std::chrono::milliseconds limit = std::chrono::milliseconds(20'000)) {
  return make_nodes_of(nodes, [&](const std::shared_ptr<NodeGroup>& group) {
    return Communicator::create_node_group(ranks, limit, group);
  });
}

// Makes nodes that each hold whole stages of a pipeline.
inline std::unique_ptr<Nodes> make_stage_nodes(int nodes, const RankLayout& layout,
                                               std::chrono::milliseconds limit = std::chrono::milliseconds(20'000)) {
  return make_nodes_of(nodes, [&](const std::shared_ptr<NodeGroup>& group) {
    return Communicator::create_stages(layout, limit, group);
  });
}

// Runs body(rank number) on one thread for each rank.
template <class Body>
void run_ranks(int ranks, const Body& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tessera::testing
