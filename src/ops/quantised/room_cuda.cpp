#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/quantised/quantised_linear.h"

namespace tessera {

void add_quantised_cuda(KernelList& list) {
  list.add({kQuantisedLinearCuda});
  list.add_joined(joined_quantised_kernels());
}

}  // namespace tessera
