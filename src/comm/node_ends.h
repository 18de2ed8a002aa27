// Sends and handles the messages by which the nodes of a group of ranks tell each other that the group has ended or
// restarts.
//
// The template parameter `Group` must have two functions. begin(epoch) restarts the group, and `epoch` is the number of
// the restart. end_once(why) ends the group, and returns whether this call did so. A failing rank may destroy the group
// before the node's connections close. Messages that arrive in between are dropped.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/net/node_group.h"

namespace tessera {

// Tells the other nodes that the group has ended. Node 0 tells all other nodes except `except`, which already knows.
// Any other node tells node 0, which tells the remaining nodes. A node that cannot be reached is lost. On such a node
// the group ends by itself.
inline void tell_end(NodeGroup& nodes, std::string_view reason, int except = 0) {
  (void)nodes.tell_all(FrameKind::kAbort, std::array{std::as_bytes(std::span(reason))}, except);
}

// Registers at `from` the handlers for the messages that say that the group has ended or restarts. Call take_ends()
// before `from` is started.
template <class Group>
void take_ends(NodeGroup& from, const std::weak_ptr<Group>& group) {
  // Ends the group here. Node 0 also passes the end on to all nodes except `node`, because nodes are connected only to
  // node 0.
  const auto end_for = [group, &from](int node, std::string_view reason) {
    if (const std::shared_ptr<Group> owner = group.lock(); owner != nullptr)
      (void)owner->end_once(cancelled(std::string(reason)));
    if (from.leads()) tell_end(from, reason, node);
  };
  from.take(FrameKind::kAbort, [end_for](int node, std::vector<std::byte>& payload) {
    end_for(node, {reinterpret_cast<const char*>(payload.data()), payload.size()});
    return ok_status();
  });
  from.when_ended([end_for, &from](int node, const Status& why) {
    end_for(node, why.ok() ? from.name(node) + " has ended" : why.message());
  });
  from.take(FrameKind::kRestart, [group, &from](int, std::vector<std::byte>& payload) -> Status {
    std::uint64_t epoch = 0;
    if (from.leads()) return data_loss("it sent a restart, which node 0 alone does");
    if (payload.size() != sizeof(epoch)) return data_loss("it sent a restart without its number");
    std::memcpy(&epoch, payload.data(), sizeof(epoch));
    if (const std::shared_ptr<Group> owner = group.lock(); owner != nullptr) owner->begin(epoch);
    return ok_status();
  });
}

}  // namespace tessera
