#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/sampling/logit_edits.h"
#include "tessera/ops/sampling/sample.h"
#include "tessera/ops/sampling/softmax.h"
#include "tessera/ops/sampling/top_logprobs.h"

namespace tessera {

void add_sampling_cuda(KernelList& list) {
  list.add({kArgmaxCuda, kLogitEditsCuda, kLogSoftmaxCuda, kSampleCuda, kTopLogprobsCuda});
}

}  // namespace tessera
