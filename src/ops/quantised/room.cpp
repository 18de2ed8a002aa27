#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/quantised/quantised_linear.h"

namespace tessera {

void add_quantised(OpList& list) { list.add({&kQuantisedLinear}, {kQuantisedLinearCpu}); }

}  // namespace tessera
