#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/linear/linear.h"

namespace tessera {

void add_linear(OpList& list) { list.add({&kLinear}, {kLinearCpu}); }

}  // namespace tessera
