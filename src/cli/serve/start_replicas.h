// Starts the engines of a server: one, or several of the same model that share its requests.
#pragma once

#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/ranks/lockstep.h"

namespace tessera::cli {

struct StartedReplicas {
  StartedReplicas() = default;
  StartedReplicas(StartedReplicas&&) = default;
  StartedReplicas& operator=(StartedReplicas&&) = delete;
  // Ends the engines at the same time, each in its own thread.
  ~StartedReplicas();

  std::shared_ptr<Lockstep> lockstep;            // with dp_attention; else null
  std::vector<std::unique_ptr<Engine>> engines;  // the engines of this process
};

// Starts the engines at the same time, each in its own thread. The first replica's devices begin at the options'
// device, and each replica's devices follow those of the replica before it. On the CPU, replicas share its cores and
// memory. With dp_attention they are ranks of one group: if one fails, all fail. With several nodes, it waits for them,
// and each node starts its part of the `count`. An error names the replica.
Result<StartedReplicas> start_replicas(const EngineOptions& options, int count);

}  // namespace tessera::cli
