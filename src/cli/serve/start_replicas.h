// The engines of a server: one, or several of the same model that share its requests.
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
  // Ends the engines at once, each in a thread of its own.
  ~StartedReplicas();

  std::shared_ptr<Lockstep> lockstep;            // of dp_attention; else null
  std::vector<std::unique_ptr<Engine>> engines;  // of this process
};

// Starts them at once, each in a thread of its own, on the devices from the options' on: replica r begins behind those
// of the ones before it. On the CPU they share its cores and memory. With dp_attention they are ranks of one group, and
// where one fails all do; of several nodes, which it waits for, each starts its part of the `count`. An error names the
// replica.
Result<StartedReplicas> start_replicas(const EngineOptions& options, int count);

}  // namespace tessera::cli
