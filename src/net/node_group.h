// The processes of one engine, one on each machine. Node 0 listens and leads. The other nodes connect only to node 0,
// which forwards their messages to each other.
//
//   const std::shared_ptr<NodeGroup> nodes = TRY(NodeGroup::join(hello, {.address = address}));
//   nodes->take(FrameKind::kOrder, [&](int from, std::vector<std::byte>& payload) { … });
//   nodes->when_ended([&](int node, const Status& why) { … });
//   nodes->start();
//   TRY(nodes->send(0, FrameKind::kAnswer, std::array{std::as_bytes(std::span(answer))}));
//
// The port has no authentication, like the ports of NCCL and torch.distributed: anyone who can reach it can take part.
// Nothing received is executed. A malformed frame ends the connection, and lengths are checked before they are used. A
// node does not fully check whether the numbers in node 0's commands make sense.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/net/node_hello.h"
#include "tessera/net/node_link.h"

namespace tessera {

struct NodeGroupOptions {
  NodeAddress address{};                          // where node 0 listens
  std::chrono::milliseconds join_limit{300'000};  // how long nodes wait for each other at the start
  std::chrono::milliseconds silence{15'000};      // a node that sends nothing for this long is lost
  int ranks = 0;  // number of ranks on all nodes, equal on each node; if above 0, errors name the ranks of a node
};

class NodeGroup {
 public:
  using Take = std::function<Status(int from, std::vector<std::byte>& payload)>;
  // Called when a node has ended. `why` is ok if the node ended in an orderly way, else kDeviceLost.
  using TakeEnd = std::function<void(int node, const Status& why)>;

  // Joins the group: waits until all nodes are connected and agree (check_hello). Errors:
  // - kInvalidArgument on a node that node 0 refuses. The message says which value differs. Node 0 logs the refusal and
  //   waits for another node.
  // - kNotFound on node 0 if a node did not connect in time. The message names the node that was refused last. The
  //   nodes that had already connected get kInvalidArgument with the same message.
  // - kNotFound on another node that could not reach node 0.
  // - The errors of Listener::open.
  static Result<std::shared_ptr<NodeGroup>> join(const NodeHello& own, const NodeGroupOptions& options);
  ~NodeGroup() { end(); }
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  int nodes() const { return nodes_; }
  int node() const { return node_; }  // number of this process's node
  bool leads() const { return node_ == 0; }
  const std::string& name(int node) const { return links_[static_cast<std::size_t>(node)]->name(); }

  // Sets the function that takes frames of a kind. Call it before start(). The function runs on the connection's thread
  // (NodeLink::TakeFrame).
  void take(FrameKind kind, Take take) { takers_[static_cast<std::size_t>(kind)] = std::move(take); }
  // Adds a function to call when a node has ended. Call it before start(). All added functions are called in order,
  // once for each node that ends, on the thread of the connection to that node. If a function throws because memory ran
  // out, it is called once more with a short error.
  void when_ended(TakeEnd take_end) { end_takers_.push_back(std::move(take_end)); }
  void start();
  // Sends a frame. Node 0 may send to any other node, the other nodes only to node 0. Callable from any thread.
  Status send(int node, FrameKind kind, FrameParts parts);
  // Sends a frame from node 0 to all other nodes except `except`. Tries each of them even after an error, and returns
  // the first error.
  Status send_to_all(FrameKind kind, FrameParts parts, int except = 0);
  // Sends a frame to all other nodes. On node 0 it sends the frame to each node except `except`. On any other node it
  // sends the frame to node 0, which forwards it.
  Status tell_all(FrameKind kind, FrameParts parts, int except = 0) {
    return leads() ? send_to_all(kind, parts, except) : send(0, kind, parts);
  }
  // Leaves the group: tells the other nodes, and makes the connections' threads end soon. If `why` is an error, the
  // other nodes learn that this node is lost and why. Otherwise they learn that it ended in an orderly way. Callable
  // from any thread. Only the first call has an effect.
  void leave(const Status& why = {});
  // Leaves like leave() and waits for the threads. Must not be called on one of these threads.
  void end();

 private:
  NodeGroup(int nodes, int node) : nodes_(nodes), node_(node), links_(static_cast<std::size_t>(nodes)) {}

  const int nodes_;
  const int node_;
  std::vector<std::unique_ptr<NodeLink>> links_;  // one for each node; null for nodes without a connection
  std::array<Take, kLastFrame + 1> takers_{};     // indexed by FrameKind
  std::vector<TakeEnd> end_takers_;
  std::mutex leaving_;
  bool left_ = false;  // guarded by leaving_
};

}  // namespace tessera
