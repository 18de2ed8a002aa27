#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/ops/rooms.h"

namespace tessera {

void add_moe_cuda(KernelList& list) { list.add({kMoeExpertsCuda, kMoeRouteCuda}); }

}  // namespace tessera
