// Makes the peers of an engine that is one of the replicas of a lockstep (lockstep.h).
#pragma once

#include <memory>

#include "tessera/engine/ranks/peers.h"

namespace tessera {

// Does what start_peers() does, for options with dp_attention.
Result<std::unique_ptr<Peers>> join_lockstep(const EngineOptions& options, EnginePlan& plan);

}  // namespace tessera
