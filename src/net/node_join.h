// How the nodes of a group find each other.
#pragma once

#include <vector>

#include "tessera/net/node_group.h"
#include "tessera/net/socket.h"

namespace tessera {

// Node 0: the connection to each other node, entry 0 closed.
Result<std::vector<Socket>> wait_for_nodes(const NodeHello& own, const NodeGroupOptions& options);
// Any other: the connection to node 0, once all nodes are there.
Result<Socket> join_node_0(const NodeHello& own, const NodeGroupOptions& options);

}  // namespace tessera
