// Commands whose engine may have ranks on several machines: which they are, and what a process does that follows.
#pragma once

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// The engine's options of a command that runs with --nnodes above 1. Null: the command has no engine, or starts several
// that each serve alone.
EngineOptions* engine_on_nodes(Command& command);

// kUnimplemented, naming the flag, where several nodes are asked for and the command runs on one alone.
Status check_nodes_of(Command& command);

// Turns NVLink's multicast (NVLS) off in NCCL for ranks on GPUs of several nodes, unless NCCL_NVLS_ENABLE is set. Call
// it before anything is started. NVLS takes memory of every GPU and state of the switches, which processes that
// are killed leave behind.
void prepare_nodes(const EngineOptions& options);

// Says on standard error which node this is, and whom it waits for.
void announce_node(const EngineOptions& options);

// Follows node 0 until that ends, instead of running the command. For a node_rank above 0. Says on standard error when
// it has joined and when node 0 has ended. Of a server, SIGINT and SIGTERM leave node 0 the time to end its requests.
Status run_follower(const Command& command);

}  // namespace tessera::cli
