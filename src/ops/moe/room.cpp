#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/moe/moe_route.h"

namespace tessera {

void add_moe(OpList& list) { list.add({&kMoeExperts, &kMoeRoute}, {kMoeExpertsCpu, kMoeRouteCpu}); }

}  // namespace tessera
