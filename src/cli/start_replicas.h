// The engines of a server: one, or several of the same model that share its requests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

// The device of replica r where the first has `device`: "cuda:1" has "cuda:2" and "cuda:3" behind it. Others, like
// "cpu", are shared.
std::string replica_device(const std::string& device, int replica);

// Starts them at once, each in a thread of its own. Replicas on the CPU share its cores. An error names the replica.
Result<std::vector<std::unique_ptr<Engine>>> start_replicas(const EngineOptions& options, int count);

}  // namespace tessera::cli
