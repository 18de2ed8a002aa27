// Makes the peers of an engine that is rank 0 of its model's ranks (engine_rank.h). The peers are the other ranks,
// which compute the engine's forwards too.
#pragma once

#include <memory>

#include "tessera/engine/ranks/peers.h"

namespace tessera {

// Does what start_peers() does, for a model with several ranks.
Result<std::unique_ptr<Peers>> lead_ranks(const EngineOptions& options, Device& device, EnginePlan& plan);

}  // namespace tessera
