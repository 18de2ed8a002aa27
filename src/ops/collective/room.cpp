#include "tessera/ops/collective/collective.h"
#include "tessera/ops/collective/row_exchange.h"
#include "tessera/ops/collective/stage_exchange.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_collective(OpList& list) {
  list.add(
      {&kAllGather, &kAllGatherRows, &kAllReduce, &kReceiveFromPrevious, &kReduceScatter, &kSendToNext},
      {kAllGatherCpu, kAllGatherRowsCpu, kAllReduceCpu, kReceiveFromPreviousCpu, kReduceScatterCpu, kSendToNextCpu});
}

}  // namespace tessera
