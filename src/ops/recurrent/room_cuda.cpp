#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/recurrent/causal_conv.h"
#include "tessera/ops/recurrent/gated_delta_net.h"
#include "tessera/ops/recurrent/output_gate.h"

namespace tessera {

void add_recurrent_cuda(KernelList& list) {
  list.add({kCausalConvCuda, kGatedDeltaNetCuda, kGatedNormCuda, kSigmoidGateCuda});
}

}  // namespace tessera
