// Runs commands whose engine may have ranks on several machines: decides which commands may, and runs the processes
// that follow node 0.
#pragma once

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Returns the engine's options of a command that can run with --nnodes above 1. Returns null if the command has no
// engine, or starts several that each serve alone.
EngineOptions* engine_on_nodes(Command& command);

// Returns kUnimplemented, naming the flag, if several nodes are asked for but the command runs on only one.
Status check_nodes_of(Command& command);

// Turns off NVLink's multicast (NVLS) in NCCL if GPUs of several nodes have ranks, unless NCCL_NVLS_ENABLE is set. Call
// it before anything is started. NVLS takes memory of every GPU and state of the switches, which killed processes leave
// behind.
void prepare_nodes(const EngineOptions& options);

// Writes to standard error which node this is and which nodes it waits for.
void announce_node(const EngineOptions& options);

// Follows node 0 until node 0 ends, instead of running the command. For node_rank above 0. Writes to standard error
// when it has joined and when node 0 has ended. In a server, SIGINT and SIGTERM give node 0 time to end its requests.
Status run_follower(const Command& command);

}  // namespace tessera::cli
