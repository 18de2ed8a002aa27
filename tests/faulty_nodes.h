// An engine with a second node; one device fails at a call that the test chooses. The second node is a thread of this
// process, with its own end of the connection.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "faulty_ranks.h"
#include "tessera/engine/ranks/engine_node.h"
#include "tessera/net/testing/free_port.h"

namespace tessera::testing {

// An engine with equally many ranks on both nodes. The ranks of the second node follow the engine's commands.
class Nodes {
 public:
  Nodes(const FaultPlan& of_rank_1, EngineOptions options, int ranks_here = 1) {
    plans = {};
    plans[1] = of_rank_1;
    options.nnodes = 2;
    options.dist_init_addr = "127.0.0.1:" + std::to_string(testing::free_port());
    EngineOptions follows = options;
    follows.node_rank = 1;
    follows.device = "faulty:" + std::to_string(ranks_here);
    follower_ = std::async(std::launch::async, [this, follows] {
      return follow_engine(follows, [this](std::shared_ptr<NodeGroup> nodes) {
        group_.set_value(std::move(nodes));
        return ok_status();
      });
    });
    Result<std::unique_ptr<Engine>> engine = Engine::create(options);
    started = engine.status();
    if (engine.ok()) engine_ = *std::move(engine);
  }
  ~Nodes() {
    engine_.reset();
    if (!follower_.valid()) return;
    const Status ended = end();
    EXPECT_TRUE(ended.ok()) << ended.to_string();
  }

  Engine& engine() { return *engine_; }
  // Returns the Status with which node 1 ended.
  Status end() {
    EXPECT_EQ(follower_.wait_for(std::chrono::seconds(30)), std::future_status::ready) << "node 1 stays behind";
    return follower_.get();
  }
  // Returns node 1's end of the connections.
  NodeGroup& group() {
    if (joined_ == nullptr) joined_ = group_.get_future().get();
    return *joined_;
  }
  void leave() { group().leave(); }

  Status started;

 private:
  std::promise<std::shared_ptr<NodeGroup>> group_;
  std::shared_ptr<NodeGroup> joined_;
  std::future<Status> follower_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tessera::testing
