#include "tessera/engine/ranks/peers.h"

#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/leader.h"
#include "tessera/engine/ranks/lockstep_peers.h"

namespace tessera {

Result<std::unique_ptr<Peers>> start_peers(const EngineOptions& options, Device& device, EnginePlan& plan) {
  if (options.dp_attention) return join_lockstep(options, plan);
  if (layout_of(options).ranks() > 1) return lead_ranks(options, device, plan);
  return std::make_unique<Peers>();
}

}  // namespace tessera
