// The ranks of any topology, and the tokens that they must return before and after faults.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "dp_attention.h"
#include "faulty_devices.h"
#include "tessera/engine/ranks/engine_node.h"
#include "topologies.h"

namespace tessera::testing {

// Returns a request for `new_tokens` tokens after a prompt of `prompt` tokens.
Request request(std::int64_t prompt, std::int64_t new_tokens);
// Returns the tokens after a prompt of 11 tokens.
Result<std::vector<TokenId>> tokens(Engine& engine);
// Returns the tokens that one rank without faults returns. The first call for a model starts an engine, so it must come
// before the start of another engine whose devices the test uses.
const std::vector<TokenId>& right_tokens(const Topology& of);

// One engine or several over the ranks of a topology. Further nodes are threads of this process, with their own ends of
// the connections.
class Group {
 public:
  using Change = std::function<void(EngineOptions&)>;
  // Starts the ranks. Rank 1's device follows `of_rank_1` from the start on. `change` changes the options of all ranks.
  explicit Group(const Topology& of, const FaultPlan& of_rank_1 = {}, const Change& change = {});
  // Checks that each node that end_of() was not called for has ended without an error.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  Status started;  // if it is an error, there are no engines
  Engine& engine() { return *engines_[0]; }
  const Engines& engines() const { return engines_; }
  // Returns the end of the connections of a node that follows an engine.
  NodeGroup& node(int number);
  // Returns the Status with which a node has ended that follows an engine. Call it at most once for each node.
  Status end_of(int node);

  // Returns the sizes of prefill and decode graphs that were dropped because a replay failed, each with its error.
  std::vector<std::pair<std::int64_t, Status>> dropped();
  // Makes requests while a rank's device follows `plan`. Returns what tells the origin of a fault: the request's error,
  // or the health of each of several engines that has a failed request. Several engines make no requests afterwards.
  std::vector<Status> fail_requests(int rank, const FaultPlan& plan);
  // Checks that all engines return the right tokens. `n` appears in the messages.
  void expect_right(std::int64_t n);
  // Checks that all engines have ended, and not because their requests had ended.
  void expect_ended(std::int64_t n);

 private:
  void follow(const EngineOptions& options);

  const Topology of_;
  std::vector<std::promise<std::shared_ptr<NodeGroup>>> joining_;  // by node, from node 1 on
  std::vector<std::shared_ptr<NodeGroup>> joined_;
  std::vector<std::future<Status>> followers_;
  Engines engines_;
};

}  // namespace tessera::testing
