#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/rooms.h"

namespace tessera {

void add_quantised(OpList& list) { list.add({&kQuantisedLinear}, {kQuantisedLinearCpu}); }

}  // namespace tessera
