#include <array>

#include "tessera/ops/collective/collective.h"
#include "tessera/ops/collective/peer_collectives.h"
#include "tessera/ops/collective/row_exchange.h"
#include "tessera/ops/collective/stage_exchange.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

void add_collective_cuda(KernelList& list) {
  list.add({kAllGatherCuda, kAllGatherRowsCuda, kAllReduceCuda, kReceiveFromPreviousCuda, kReduceScatterCuda,
            kSendToNextCuda});
  list.add_joined(std::array{cuda::kPeerNorm});
}

}  // namespace tessera
