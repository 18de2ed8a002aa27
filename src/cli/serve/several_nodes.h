// Runs commands whose engine has ranks on several machines. Says which commands can have such an engine. On every node
// except node 0, the process follows node 0 instead of running the command.
#pragma once

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Returns the engine's options if the command can run on several nodes (--nnodes above 1). Returns null if it cannot,
// because it has no engine or starts several independent engines.
EngineOptions* engine_on_nodes(Command& command);

// Returns kUnimplemented, naming the flag, if several nodes are requested but the command can only run on one.
Status check_nodes_of(Command& command);

// If ranks run on GPUs of several nodes, turns off NVLink multicast (NVLS) in NCCL, unless NCCL_NVLS_ENABLE is set.
// NVLS takes memory of every GPU and state of the NVLink switches. Killed processes release neither. Call this before
// anything is started.
void prepare_nodes(const EngineOptions& options);

// Writes to standard error which node this is and for which nodes it waits.
void announce_node(const EngineOptions& options);

// Follows node 0 until node 0 ends, instead of running the command. Precondition: node_rank is above 0. Writes to
// standard error when this node has joined and when node 0 has ended. If the command is a server, SIGINT and SIGTERM
// give node 0 time to end its requests.
Status run_follower(const Command& command);

}  // namespace tessera::cli
