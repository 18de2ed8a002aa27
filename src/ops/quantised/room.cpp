#include "tessera/ops/quantised/room.h"

#include "tessera/ops/quantised/quantised_linear.h"

namespace tessera {

void add_quantised(OpList& list) { list.add({&kQuantisedLinear}, {kQuantisedLinearCpu}); }

}  // namespace tessera
