#include "tessera/ops/contract/rooms.h"
#include "tessera/ops/sampling/logit_edits.h"
#include "tessera/ops/sampling/sample.h"
#include "tessera/ops/sampling/softmax.h"
#include "tessera/ops/sampling/top_logprobs.h"

namespace tessera {

void add_sampling(OpList& list) {
  list.add({&kArgmax, &kLogitEdits, &kLogSoftmax, &kSample, &kTopLogprobs},
           {kArgmaxCpu, kLogitEditsCpu, kLogSoftmaxCpu, kSampleCpu, kTopLogprobsCpu});
}

}  // namespace tessera
