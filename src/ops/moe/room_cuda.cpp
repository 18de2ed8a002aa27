#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/moe/adapter_experts.h"
#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/moe/moe_route.h"

namespace tessera {

void add_moe_cuda(KernelList& list) { list.add({kAdapterExpertsCuda, kMoeExpertsCuda, kMoeRouteCuda}); }

}  // namespace tessera
