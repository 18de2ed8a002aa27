// The engines of a server: one, or several of the same model that share its requests.
#pragma once

#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

// Starts them at once, each in a thread of its own, on the devices from the options' on: replica r begins behind those
// of the ones before it. On the CPU they share its cores and memory. With dp_attention they are ranks of one group, and
// where one fails all do. An error names the replica.
Result<std::vector<std::unique_ptr<Engine>>> start_replicas(const EngineOptions& options, int count);

}  // namespace tessera::cli
