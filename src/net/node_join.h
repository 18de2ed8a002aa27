// Connects the nodes of a group at the start.
#pragma once

#include <vector>

#include "tessera/net/node_group.h"
#include "tessera/net/socket.h"

namespace tessera {

// Called on node 0. Waits for the other nodes, and returns the connections to them, indexed by node. Entry 0 is a
// closed socket.
Result<std::vector<Socket>> wait_for_nodes(const NodeHello& own, const NodeGroupOptions& options);
// Called on any other node. Joins the group, and returns the connection to node 0 once all nodes have joined.
Result<Socket> join_node_0(const NodeHello& own, const NodeGroupOptions& options);

}  // namespace tessera
