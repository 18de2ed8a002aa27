#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_adapters(OpList& list) { list.add({&kAdapterAdd, &kAdapterShrink}, {kAdapterAddCpu, kAdapterShrinkCpu}); }

}  // namespace tessera
