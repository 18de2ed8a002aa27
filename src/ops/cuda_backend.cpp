// The one symbol of libtessera_cuda.so.
#include <cuda_runtime.h>

#include "tessera/base/json.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/add_gated.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/axial_rotary.h"
#include "tessera/ops/causal_conv.h"
#include "tessera/ops/collective.h"
#include "tessera/ops/decoder_layers.h"
#include "tessera/ops/device_registry.h"
#include "tessera/ops/elementwise.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/fused/row_cuda_builder.h"
#include "tessera/ops/gated_delta_net.h"
#include "tessera/ops/gather.h"
#include "tessera/ops/join.h"
#include "tessera/ops/kv_store.h"
#include "tessera/ops/latent_attention.h"
#include "tessera/ops/latent_store.h"
#include "tessera/ops/layer_norm.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/linear_cuda.h"
#include "tessera/ops/linear_gelu.h"
#include "tessera/ops/linear_residual.h"
#include "tessera/ops/linear_tuning.h"
#include "tessera/ops/logit_edits.h"
#include "tessera/ops/moe_experts.h"
#include "tessera/ops/moe_route.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/output_gate.h"
#include "tessera/ops/peer_collectives.h"
#include "tessera/ops/pipeline.h"
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
namespace {

std::vector<JoinedKernelDef> joined_kernels() {
  std::vector<JoinedKernelDef> kernels = joined_linear_kernels();
  kernels.push_back(kLinearResidualNormCuda);
  kernels.push_back(kLinearGeluCuda);
  kernels.push_back(kNormTwiceCuda);
  kernels.push_back(cuda::kPeerNorm);
  kernels.push_back(joined_decoder_layers());
  return kernels;
}

const KernelTable& cuda_kernels() {
  static const KernelTable table(
      {
          kAddCuda,
          kAddGatedCuda,
          kAddGivenCuda,
          kAddRmsNormCuda,
          kAllGatherCuda,
          kAllGatherRowsCuda,
          kAllReduceCuda,
          kArgmaxCuda,
          kAttentionCuda,
          kAxialTableCuda,
          kCastCuda,
          kCausalConvCuda,
          kCopyCuda,
          kEmbeddingCuda,
          kGatedDeltaNetCuda,
          kGatedNormCuda,
          kGatherRowsCuda,
          kGeluCuda,
          kGeluMulCuda,
          kHeadNormCuda,
          kJoinCuda,
          kKvStoreCuda,
          kLatentAttentionCuda,
          kLatentStoreCuda,
          kLayerNormCuda,
          kLinearCuda,
          kLogitEditsCuda,
          kLogSoftmaxCuda,
          kMoeExpertsCuda,
          kMoeRouteCuda,
          kMulCuda,
          kQkvRopeStoreCuda,
          kReceiveFromPreviousCuda,
          kReduceScatterCuda,
          kResolveIdsCuda,
          kRmsNormCuda,
          kRotaryCuda,
          kRotaryTableCuda,
          kRotateHeadsCuda,
          kSampleCuda,
          kScaleCuda,
          kSegmentAttentionCuda,
          kSendToNextCuda,
          kSigmoidGateCuda,
          kSiluCuda,
          kSiluMulCuda,
          kSoftcapCuda,
          kSplitCuda,
          kTopLogprobsCuda,
          kWeightedRowsCuda,
      },
      joined_kernels());
  return table;
}

Result<std::unique_ptr<Device>> create_cuda_device(const DeviceChoice& choice) {
  return TRY(CudaDevice::create({.ordinal = choice.ordinal, .act_as = choice.act_as}));
}

Status launch_from_outside(Stream& stream, const char* name, const std::function<Status(void*)>& enqueue) {
  CudaStream& cuda = as_cuda(stream);
  TRY(cuda.begin_launch(name));
  TRY(enqueue(cuda.handle()));
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return cuda.launch_error(name, error);
  return ok_status();
}

const Backend kCudaBackend{.create_device = create_cuda_device,
                           .kernels = &cuda_kernels(),
                           .versions = cublaslt_versions,
                           .export_algorithms = cublaslt_algorithms,
                           .import_algorithms = remember_cublaslt_algorithms,
                           .learn_algorithms = learn_cublaslt_algorithms,
                           .measure_algorithms = measure_cublaslt_algorithms,
                           .row_kernels = cuda_row_kernels,
                           .start_libraries = start_cublaslt,
                           .launch = launch_from_outside};

}  // namespace
}  // namespace tessera

extern "C" {
__attribute__((visibility("default"))) extern const tessera::BackendExport tessera_backend;
const tessera::BackendExport tessera_backend{TESSERA_BACKEND_INTERFACE, &tessera::kCudaBackend};
}
