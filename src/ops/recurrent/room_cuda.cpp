#include "tessera/ops/recurrent/causal_conv.h"
#include "tessera/ops/recurrent/gated_delta_net.h"
#include "tessera/ops/recurrent/output_gate.h"
#include "tessera/ops/rooms.h"

namespace tessera {

void add_recurrent_cuda(KernelList& list) {
  list.add({kCausalConvCuda, kGatedDeltaNetCuda, kGatedNormCuda, kSigmoidGateCuda});
}

}  // namespace tessera
