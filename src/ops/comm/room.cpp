#include "tessera/ops/comm/room.h"

#include "tessera/ops/comm/collective.h"
#include "tessera/ops/comm/pipeline.h"
#include "tessera/ops/comm/row_exchange.h"

namespace tessera {

void add_comm(OpList& list) {
  list.add(
      {&kAllGather, &kAllGatherRows, &kAllReduce, &kReceiveFromPrevious, &kReduceScatter, &kSendToNext},
      {kAllGatherCpu, kAllGatherRowsCpu, kAllReduceCpu, kReceiveFromPreviousCpu, kReduceScatterCpu, kSendToNextCpu});
}

}  // namespace tessera
