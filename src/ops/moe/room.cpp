#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/ops/rooms.h"

namespace tessera {

void add_moe(OpList& list) { list.add({&kMoeExperts, &kMoeRoute}, {kMoeExpertsCpu, kMoeRouteCpu}); }

}  // namespace tessera
