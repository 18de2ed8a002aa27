// Starts the engines of a server. A server has one engine, or several engines of the same model that share the
// requests.
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
  // Destroys the engines at the same time, each in its own thread.
  ~StartedReplicas();

  std::shared_ptr<Lockstep> lockstep;            // set with dp_attention
  std::vector<std::unique_ptr<Engine>> engines;  // the engines of this process
};

// Starts the engines at the same time, each in its own thread. The first replica's first device is options.device, and
// each replica's devices follow those of the replica before it. On the CPU, replicas share cores and memory. With
// dp_attention the replicas are ranks of one group, so all fail if one fails. With several nodes, waits for the other
// nodes, and each node starts its part of the `count` replicas. An error names the replica.
Result<StartedReplicas> start_replicas(const EngineOptions& options, int count);

}  // namespace tessera::cli
