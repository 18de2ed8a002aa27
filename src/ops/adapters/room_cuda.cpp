#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_lookup.h"
#include "tessera/ops/adapters/adapter_whole.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_adapters_cuda(KernelList& list) {
  list.add(
      {kAdapterAddCuda, kAdapterLookupCuda, kAdapterShrinkCuda, kAdapterWholeEmbeddingCuda, kAdapterWholeLinearCuda});
}

}  // namespace tessera
