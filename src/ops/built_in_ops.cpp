#include "tessera/ops/built_in_ops.h"

#include "tessera/ops/activation.h"
#include "tessera/ops/add_gated.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/axial_rotary.h"
#include "tessera/ops/causal_conv.h"
#include "tessera/ops/collective.h"
#include "tessera/ops/elementwise.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/gated_delta_net.h"
#include "tessera/ops/gather.h"
#include "tessera/ops/join.h"
#include "tessera/ops/kv_store.h"
#include "tessera/ops/latent_attention.h"
#include "tessera/ops/latent_store.h"
#include "tessera/ops/layer_norm.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/logit_edits.h"
#include "tessera/ops/moe_experts.h"
#include "tessera/ops/moe_route.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/output_gate.h"
#include "tessera/ops/qkv_rope_store.h"
#include "tessera/ops/rotary.h"
#include "tessera/ops/row_exchange.h"
#include "tessera/ops/sample.h"
#include "tessera/ops/segment_attention.h"
#include "tessera/ops/softmax.h"
#include "tessera/ops/top_logprobs.h"
#include "tessera/ops/view.h"
#include "tessera/ops/weighted_rows.h"

namespace tessera {

const ir::OpTable& built_in_ops() {
  static const ir::OpTable table({
      &kAdd,           &kAddGated,      &kAddGiven,     &kAddRmsNorm,   &kAllGather,
      &kAllGatherRows, &kAllReduce,     &kArgmax,       &kAttention,    &kAxialTable,
      &kCast,          &kCausalConv,    &kCopy,         &kEmbedding,    &kEmpty,
      &kEmptyLike,     &kGatedDeltaNet, &kGatedNorm,    &kGatherRows,   &kGelu,
      &kGeluMul,       &kHeadNorm,      &kJoin,         &kKvStore,      &kLatentAttention,
      &kLatentStore,   &kLayerNorm,     &kLinear,       &kLogitEdits,   &kLogSoftmax,
      &kMoeExperts,    &kMoeRoute,      &kMul,          &kQkvRopeStore, &kReceiveFromPrevious,
      &kReshape,       &kReduceScatter, &kResolveIds,   &kRmsNorm,      &kRotary,
      &kRotaryTable,   &kRotateHeads,   &kSample,       &kScale,        &kSegmentAttention,
      &kSendToNext,    &kSigmoidGate,   &kSilu,         &kSiluMul,      &kSoftcap,
      &kSplit,         &kTopLogprobs,   &kWeightedRows,
  });
  return table;
}

const KernelTable& cpu_kernels() {
  static const KernelTable table({
      kAddCpu,
      kAddGatedCpu,
      kAddGivenCpu,
      kAddRmsNormCpu,
      kAllGatherCpu,
      kAllGatherRowsCpu,
      kAllReduceCpu,
      kArgmaxCpu,
      kAttentionCpu,
      kAxialTableCpu,
      kCastCpu,
      kCausalConvCpu,
      kCopyCpu,
      kEmbeddingCpu,
      kGatedDeltaNetCpu,
      kGatedNormCpu,
      kGatherRowsCpu,
      kGeluCpu,
      kGeluMulCpu,
      kHeadNormCpu,
      kJoinCpu,
      kKvStoreCpu,
      kLatentAttentionCpu,
      kLatentStoreCpu,
      kLayerNormCpu,
      kLinearCpu,
      kLogitEditsCpu,
      kLogSoftmaxCpu,
      kMoeExpertsCpu,
      kMoeRouteCpu,
      kMulCpu,
      kQkvRopeStoreCpu,
      kReceiveFromPreviousCpu,
      kReduceScatterCpu,
      kResolveIdsCpu,
      kRmsNormCpu,
      kRotaryCpu,
      kRotaryTableCpu,
      kRotateHeadsCpu,
      kSampleCpu,
      kScaleCpu,
      kSegmentAttentionCpu,
      kSendToNextCpu,
      kSigmoidGateCpu,
      kSiluCpu,
      kSiluMulCpu,
      kSoftcapCpu,
      kSplitCpu,
      kTopLogprobsCpu,
      kWeightedRowsCpu,
  });
  return table;
}

}  // namespace tessera
