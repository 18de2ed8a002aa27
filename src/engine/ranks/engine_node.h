// An engine on several machines: a process on each, with an equal part of the ranks, of a pipeline whole stages. Node 0
// has the engine; the others follow it (runner/ranks/rank_node.h). Ranks with requests of their own are engines on each
// node instead (lockstep.h). Ranks are on CPUs, or all on GPUs, which exchange values by NCCL
// (ops/comm/nccl_exchange.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/net/node_group.h"

namespace tessera {

// Of every wait for another rank or node, but for the loading of weights.
std::chrono::milliseconds rank_limit(const EngineOptions& options);

// What nnodes, node_rank and dist_init_addr have to be. kInvalidArgument, or kUnimplemented for what devices of several
// processes cannot.
Status check_nodes(const EngineOptions& options);

// What this process tells the others of itself: version, a hash of the model, the options that all have to share, and
// processor and threads of a rank, `device`. On GPUs the versions of driver, libraries and NCCL too; kNotFound where
// there is no NCCL. The hash is of config.json and of names, types and shapes of the weights, not of their values.
Result<NodeHello> node_hello(const EngineOptions& options, const DeviceProperties& device);

// Waits for the other nodes. Null for one node.
Result<std::shared_ptr<NodeGroup>> join_nodes(const EngineOptions& options, const DeviceProperties& device);

// The whole life of a process with node_rank above 0: until node 0 ends, or this one leaves. Errors as NodeGroup::join;
// kDeviceLost where node 0 is lost. `joined` is called once all nodes are there, and may keep the group to leave it.
Status follow_engine(const EngineOptions& options, const std::function<Status(std::shared_ptr<NodeGroup>)>& joined);

}  // namespace tessera
