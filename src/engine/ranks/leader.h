// Makes the peers of an engine that leads: it is rank 0 of its model's ranks (engine_rank.h).
#pragma once

#include <memory>

#include "tessera/engine/ranks/peers.h"

namespace tessera {

// Does what start_peers() does, for a model with several ranks.
Result<std::unique_ptr<Peers>> lead_ranks(const EngineOptions& options, Device& device, EnginePlan& plan);

}  // namespace tessera
