// An engine on several machines. Each machine has one process with an equal part of the ranks (in a pipeline, with
// whole stages). Node 0 has the engine, and the other nodes follow it (runner/ranks/rank_node.h). If ranks have
// requests of their own (dp_attention), each node has the engines of its own ranks instead (lockstep.h). All ranks are
// on CPUs, or all are on GPUs that exchange values by NCCL (comm/nccl_exchange.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/net/node_group.h"

namespace tessera {

// Returns the longest time that a rank waits for another rank or node. The limit does not hold while weights load.
std::chrono::milliseconds rank_limit(const EngineOptions& options);

// Returns what this process tells the other nodes about itself: its version, a hash of the model, the options that all
// nodes must share, and the processor and threads of a rank (`device`). On GPUs, adds the versions of driver, libraries
// and NCCL, and returns kNotFound if NCCL is missing. The hash covers config.json and the names, types and shapes of
// the weights, not their values.
Result<NodeHello> node_hello(const EngineOptions& options, const DeviceProperties& device);

// Waits for the other nodes. Returns null if there is only one node.
Result<std::shared_ptr<NodeGroup>> join_nodes(const EngineOptions& options, const DeviceProperties& device);

// Runs a process with node_rank above 0 from its start until node 0 ends or this process leaves. Returns errors of
// NodeGroup::join, and kDeviceLost if node 0 is lost. `joined` is called as soon as all nodes are there. `joined` may
// keep the group, so that this process can leave the group later.
Status follow_engine(const EngineOptions& options, const std::function<Status(std::shared_ptr<NodeGroup>)>& joined);

}  // namespace tessera
