// Connects the nodes of a group at the start.
#pragma once

#include <vector>

#include "tessera/net/node_group.h"
#include "tessera/net/socket.h"

namespace tessera {

// Waits on node 0 for the other nodes. Returns the connection to each of them; entry 0 is closed.
Result<std::vector<Socket>> wait_for_nodes(const NodeHello& own, const NodeGroupOptions& options);
// Joins from any other node. Returns the connection to node 0 once all nodes have joined.
Result<Socket> join_node_0(const NodeHello& own, const NodeGroupOptions& options);

}  // namespace tessera
