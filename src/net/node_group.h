// The processes of one engine, one for each machine. Node 0 listens and leads; the others connect to it, and to no
// other: what goes from one to another goes by way of node 0.
//
//   const std::shared_ptr<NodeGroup> nodes = TRY(NodeGroup::join(hello, {.address = address}));
//   nodes->take(FrameKind::kOrder, [&](int from, std::vector<std::byte>& payload) { … });
//   nodes->when_ended([&](int node, const Status& why) { … });
//   nodes->start();
//   TRY(nodes->send(0, FrameKind::kAnswer, std::array{std::as_bytes(std::span(answer))}));
//
// The port trusts its network, as those of NCCL and torch.distributed do: whoever reaches it can take part. Nothing
// that comes from it is executed. A frame of another form than expected ends the connection, and its lengths are
// checked before they are used; whether the numbers in node 0's orders make sense, a node does not check in full.
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
  std::chrono::milliseconds join_limit{300'000};  // that nodes wait for one another at the start
  std::chrono::milliseconds silence{15'000};      // after which a node that says nothing is lost
};

class NodeGroup {
 public:
  using Take = std::function<Status(int from, std::vector<std::byte>& payload)>;
  // `why`: ok where the node ended in order, else kDeviceLost.
  using TakeEnd = std::function<void(int node, const Status& why)>;

  // Until all nodes are here and agree (check_hello). Errors: kInvalidArgument where node 0 refuses this one, of what
  // differs; node 0 itself logs that and waits for another one. kNotFound on node 0 where a node did not come in time,
  // with whom it refused last, and kInvalidArgument of the same words on those that waited with it. Else kNotFound
  // where node 0 was not there; as Listener::open.
  static Result<std::shared_ptr<NodeGroup>> join(const NodeHello& own, const NodeGroupOptions& options);
  ~NodeGroup() { end(); }
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  int nodes() const { return nodes_; }
  int node() const { return node_; }  // this process
  bool leads() const { return node_ == 0; }
  const std::string& name(int node) const { return links_[static_cast<std::size_t>(node)]->name(); }

  // Who takes frames of a kind; before start(). Called on the connection's thread (NodeLink::TakeFrame).
  void take(FrameKind kind, Take take) { takers_[static_cast<std::size_t>(kind)] = std::move(take); }
  // Who is told that a node has ended; before start(). All that were named, in order, once for each node, on its
  // connection's thread. One that throws, for want of memory, is called once more with an error of a few words.
  void when_ended(TakeEnd take_end) { end_takers_.push_back(std::move(take_end)); }
  void start();
  // Node 0 to any other, and the others to node 0. From any thread.
  Status send(int node, FrameKind kind, FrameParts parts);
  // Node 0 to all others but `except`. The first error; all others are tried.
  Status send_to_all(FrameKind kind, FrameParts parts, int except = 0);
  // For all others: node 0 sends it to each but `except`, any other node to node 0, which passes it on.
  Status tell_all(FrameKind kind, FrameParts parts, int except = 0) {
    return leads() ? send_to_all(kind, parts, except) : send(0, kind, parts);
  }
  // Tells the others, and ends the threads soon. Where `why` is not ok they are told that this node is lost, and why,
  // instead of that it ended in order. From any thread; the first call counts.
  void leave(const Status& why = {});
  // Leaves like leave(), and waits for the threads. Not to be called on one of them.
  void end();

 private:
  NodeGroup(int nodes, int node) : nodes_(nodes), node_(node), links_(static_cast<std::size_t>(nodes)) {}

  const int nodes_;
  const int node_;
  std::vector<std::unique_ptr<NodeLink>> links_;  // [nodes]; null where there is none
  std::array<Take, kLastFrame + 1> takers_{};     // by FrameKind
  std::vector<TakeEnd> end_takers_;
  std::mutex leaving_;
  bool left_ = false;  // guarded by it
};

}  // namespace tessera
