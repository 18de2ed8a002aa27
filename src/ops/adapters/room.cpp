#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/adapters/adapter_lookup.h"
#include "tessera/ops/adapters/adapter_whole.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_adapters(OpList& list) {
  list.add({&kAdapterAdd, &kAdapterLookup, &kAdapterShrink, &kAdapterWholeEmbedding, &kAdapterWholeLinear},
           {kAdapterAddCpu, kAdapterLookupCpu, kAdapterShrinkCpu, kAdapterWholeEmbeddingCpu, kAdapterWholeLinearCpu});
}

}  // namespace tessera
