// Commands whose engine may have ranks on several machines: which they are, and what a process does that follows.
#pragma once

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// The engine of a command that takes --nnodes above 1; null: the command has none, or starts several that each serve
// alone.
EngineOptions* engine_on_nodes(Command& command);

// kUnimplemented, by the flag, where a command of several nodes is none that runs on them.
Status check_nodes_of(Command& command);

// Before anything is started. Ranks on GPUs of several nodes: NCCL leaves NVLink's multicast (NVLS) alone, where
// NCCL_NVLS_ENABLE does not say otherwise. It takes memory of every GPU and state of the switches, which processes that
// are killed leave behind.
void prepare_nodes(const EngineOptions& options);

// Says on standard error which node this is, and whom it waits for.
void announce_node(const EngineOptions& options);

// Instead of the command, where node_rank is above 0: follows node 0 until that ends. Says on standard error when it
// has joined and when node 0 has ended. Of a server, SIGINT and SIGTERM leave node 0 the time to end its requests.
Status run_follower(const Command& command);

}  // namespace tessera::cli
