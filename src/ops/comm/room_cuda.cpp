#include "tessera/ops/comm/room.h"

#include <array>

#include "tessera/ops/comm/collective.h"
#include "tessera/ops/comm/peer_collectives.h"
#include "tessera/ops/comm/pipeline.h"
#include "tessera/ops/comm/row_exchange.h"

namespace tessera {

void add_comm_cuda(KernelList& list) {
  list.add({kAllGatherCuda, kAllGatherRowsCuda, kAllReduceCuda, kReceiveFromPreviousCuda, kReduceScatterCuda,
            kSendToNextCuda});
  list.add_joined(std::array{cuda::kPeerNorm});
}

}  // namespace tessera
