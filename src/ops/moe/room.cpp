#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/moe/adapter_experts.h"
#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/moe/moe_route.h"

namespace tessera {

void add_moe(OpList& list) {
  list.add({&kAdapterExperts, &kMoeExperts, &kMoeRoute}, {kAdapterExpertsCpu, kMoeExpertsCpu, kMoeRouteCpu});
}

}  // namespace tessera
