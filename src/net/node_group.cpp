#include "tessera/net/node_group.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "tessera/net/node_join.h"

namespace tessera {

namespace {

// Returns the name of a node in errors: "node 1 of 2 (127.0.0.1:4711; ranks 2 to 3)".
std::string name_of(int node, int nodes, const std::string& address, int ranks) {
  const int each = ranks / nodes;
  const std::string of_node = each == 0   ? ""
                              : each == 1 ? fmt::format("; rank {}", node)
                                          : fmt::format("; ranks {} to {}", node * each, (node + 1) * each - 1);
  return fmt::format("node {} of {} ({}{})", node, nodes, address, of_node);
}

void tell(const NodeGroup::TakeEnd& take_end, int node, const Status& why) {
  try {
    take_end(node, why);
    return;
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): handled below, after this memory is freed
  }
  try {
    take_end(node, device_lost("a node is gone"));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other takers must be told too
  }
}

}  // namespace

Result<std::shared_ptr<NodeGroup>> NodeGroup::join(const NodeHello& own, const NodeGroupOptions& options) {
  std::shared_ptr<NodeGroup> group(new NodeGroup(own.nodes, own.node));
  const auto add = [&](int node, Socket socket) {
    std::string name = name_of(node, own.nodes, socket.peer(), options.ranks);
    group->links_[static_cast<std::size_t>(node)] =
        std::make_unique<NodeLink>(std::move(socket), std::move(name), options.silence);
  };
  if (own.node == 0) {
    std::vector<Socket> sockets = TRY(wait_for_nodes(own, options));
    for (int node = 1; node < own.nodes; ++node) add(node, std::move(sockets[static_cast<std::size_t>(node)]));
  } else {
    Socket socket = TRY(join_node_0(own, options));
    add(0, std::move(socket));
  }
  return group;
}

void NodeGroup::start() {
  for (int node = 0; node < nodes_; ++node) {
    NodeLink* const link = links_[static_cast<std::size_t>(node)].get();
    if (link == nullptr) continue;
    link->start(
        [this, node](FrameKind kind, std::vector<std::byte>& payload) {
          const Take& take = takers_[static_cast<std::size_t>(kind)];
          if (take) return take(node, payload);
          return Status(data_loss(
              fmt::format("it sent a message of kind {}, which this node does not expect", static_cast<int>(kind))));
        },
        [this, node](const Status& why) {
          for (const TakeEnd& take_end : end_takers_) tell(take_end, node, why);
        });
  }
}

Status NodeGroup::send(int node, FrameKind kind, FrameParts parts) {
  return links_[static_cast<std::size_t>(node)]->send(kind, parts);
}

Status NodeGroup::send_to_all(FrameKind kind, FrameParts parts, int except) {
  Status failed;
  for (int node = 1; node < nodes_; ++node) {
    if (node == except) continue;
    Status sent = send(node, kind, parts);
    if (failed.ok()) failed = std::move(sent);
  }
  return failed;
}

void NodeGroup::leave(const Status& why) {
  const std::lock_guard lock(leaving_);
  if (std::exchange(left_, true)) return;
  for (const std::unique_ptr<NodeLink>& link : links_)
    if (link != nullptr) link->leave(why);
}

void NodeGroup::end() {
  leave();  // all links leave before the loop waits for one of them, so that all other ends see an orderly end
  for (const std::unique_ptr<NodeLink>& link : links_)
    if (link != nullptr) link->end();
}

}  // namespace tessera
