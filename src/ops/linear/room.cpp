#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rooms.h"

namespace tessera {

void add_linear(OpList& list) { list.add({&kLinear}, {kLinearCpu}); }

}  // namespace tessera
