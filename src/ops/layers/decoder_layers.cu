// Binds the kernel that runs all layers (decoder_layers.cuh).
#include "tessera/ops/layers/decoder_layers.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/cache/qkv_rope_store_args.h"
#include "tessera/ops/contract/device_claims.h"
#include "tessera/ops/contract/norm_form.h"
#include "tessera/ops/cuda/clear_memory.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/is_aligned.h"
#include "tessera/ops/cuda/tensor_map.h"
#include "tessera/ops/layers/decoder_layer_region.h"
#include "tessera/ops/layers/decoder_layers.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::decoder_layers;
using T = __nv_bfloat16;
using Shape = LayerShape<1024, 16, 8, 3072>;

// The maximum number of rows for this kernel. With four rows, separate kernels are faster
// (docs/measurements/prefill-decode.md).
constexpr std::int64_t kMostRows = 2;

// Returns whether `w` is a bfloat16 weight of this size. It must begin at a multiple of 16 bytes, because the kernel
// copies it to shared memory.
bool is_matrix(const TensorView& w, std::int64_t rows, std::int64_t columns) {
  return w.is_weight && w.dtype == ir::DType::kBFloat16 && w.rank == 2 && w.dim(0) == rows && w.dim(1) == columns &&
         is_aligned(w.data.raw());
}
bool is_plain_linear(const BindArgs& call, std::int64_t rows, std::int64_t columns) {
  return call.operands.size() == 2 && is_matrix(call.operands[1], rows, columns);
}
bool is_norm_weight(const TensorView& w, std::int64_t elements) {
  return w.is_weight && w.dtype == ir::DType::kBFloat16 && w.elements() == elements && is_aligned(w.data.raw());
}
bool is_norm(const BindArgs& call, float eps) {
  return norm_form(call.node) == NormForm::kRoundFirst &&
         static_cast<float>(call.node.attribute_or("eps", 0.0)) == eps &&
         is_norm_weight(call.operands.back(), Shape::kHidden);
}

// Returns whether the kernel supports `layer`. Except for its weights and its cache, `layer` must equal the layer
// `one`.
bool serves_layer(std::span<const BindArgs> layer, std::span<const BindArgs> one, float eps) {
  const BindArgs& store = layer[kStore];
  const BindArgs& attention = layer[kAttend];
  const auto same = [&](DecoderLayerCall call, std::string_view attribute, auto fallback) {
    return layer[call].node.attribute_or(attribute, fallback) == one[call].node.attribute_or(attribute, fallback);
  };
  const auto shared = [&](std::size_t operand) {
    return store.operands[operand].data.raw() == one[kStore].operands[operand].data.raw();
  };
  const TensorView& cache = attention.operands[1];
  return is_plain_linear(layer[kQkv], Shape::kQkv, Shape::kHidden) &&
         is_plain_linear(layer[kO], Shape::kHidden, Shape::kAttention) &&
         is_plain_linear(layer[kGateUp], 2 * Shape::kInner, Shape::kHidden) &&
         is_plain_linear(layer[kDown], Shape::kHidden, Shape::kInner) && is_norm(layer[kMlpNorm], eps) &&
         is_norm(layer[kNextNorm], eps) && store.operands.size() == 7 && is_norm_weight(store.operands[5], kHeadDim) &&
         is_norm_weight(store.operands[6], kHeadDim) && norm_form(store.node) == NormForm::kRoundFirst &&
         store.operands[1].dim(1) == kHeadDim && cache.dtype == ir::DType::kBFloat16 &&
         cache.dim(2) == Shape::kKvHeads && cache.dim(3) == kHeadDim && attention.operands.size() == 4 &&
         attention.node.attribute_or("window", std::int64_t{0}) == 0 &&
         attention.node.attribute_or("softcap", 0.0) == 0 && same(kAttend, "scale", 1.0) &&
         same(kAttend, "group", std::int64_t{0}) && same(kStore, "eps", kDefaultQkNormEps) && shared(1) && shared(2) &&
         cache.dim(1) == one[kAttend].operands[1].dim(1) && kTileKeys % cache.dim(1) == 0 &&
         kTileKeys / cache.dim(1) <= kWarp;  // each lane of a warp copies one page of a tile of keys
}

// Returns whether blocks of other processes may run on the current device at the same time as blocks of this process.
bool is_shared_with_processes() {
  int device = 0;
  int shared = 0;
  return cudaGetDevice(&device) != cudaSuccess ||
         cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, device) != cudaSuccess || shared != 0;
}

// Returns whether all blocks can run at once, one on each multiprocessor. Otherwise the kernel could deadlock, because
// its blocks wait for one another.
bool runs_all_blocks(const BindArgs& call) {
  const Result<std::size_t> memory = most_shared_memory("decoder layers");
  return call.device.properties().threads >= kBlocks && memory.ok() && *memory >= kSharedBytes<kMostRows> &&
         can_launch_early() && !is_shared_with_processes();
}

// Claims the device for this engine. Returns null if another engine has claimed it. If two engines launched this kernel
// at once, neither launch might get all of its blocks started, and the started blocks would wait forever.
std::shared_ptr<const DeviceClaim> claim_device(const BindArgs& call) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return nullptr;
  return DeviceClaims::of_process().take(device, &call.context, "decoder layers");
}

bool serves(std::span<const BindArgs> calls) {
  const TensorView& x = calls[0].operands[0];
  const float eps = static_cast<float>(calls[0].node.attribute_or("eps", 0.0));
  if (x.dtype != ir::DType::kBFloat16 || x.rows() < 1 || x.rows() > kMostRows || !is_norm(calls[0], eps) ||
      calls[0].context.batch_kind != BatchKind::kDecode || calls[0].context.limits.deterministic ||
      (calls[0].context.limits.drafts && x.rows() > 1) || !calls[0].context.limits.attention_kernel.empty() ||
      !runs_all_blocks(calls[0]) || calls.size() / kCallsOfLayer > kMostLayers)
    return false;
  for (std::size_t first = 1; first < calls.size(); first += kCallsOfLayer)
    if (!serves_layer(calls.subspan(first, kCallsOfLayer), calls.subspan(1, kCallsOfLayer), eps)) return false;
  return true;
}

// Encodes the tensor map of a cache [pages, page_size, kv_heads, head_dim]. The copy engine swizzles rows of 128 bytes,
// so a head's 256 bytes are two rows of the map.
Result<CUtensorMap> map_of_pages(const TensorView& cache) {
  constexpr std::int64_t kRow = 64;
  const TensorBox dimensions[]{
      {.size = kRow, .stride = 1, .box = kRow},
      {.size = kHeadDim / kRow, .stride = kRow, .box = kHeadDim / kRow},
      {.size = cache.dim(2), .stride = kHeadDim, .box = 1},
      {.size = cache.dim(1), .stride = cache.dim(2) * kHeadDim, .box = static_cast<int>(cache.dim(1))},
      {.size = cache.dim(0), .stride = cache.dim(1) * cache.dim(2) * kHeadDim, .box = 1}};
  return encode_tensor_map(cache.dtype, cache.data.raw(), dimensions);
}

Result<LayerWeights> weights_of(const BindArgs& norm, std::span<const BindArgs> layer) {
  const auto at = [&](std::size_t call, std::size_t operand) { return layer[call].operands[operand].as<T>(); };
  const CUtensorMap key_pages = TRY(map_of_pages(layer[kStore].operands[3]));
  const CUtensorMap value_pages = TRY(map_of_pages(layer[kStore].operands[4]));
  return LayerWeights{.attention_norm = norm.operands.back().as<T>(),
                      .qkv = at(kQkv, 1),
                      .q_norm = at(kStore, 5),
                      .k_norm = at(kStore, 6),
                      .o = at(kO, 1),
                      .mlp_norm = at(kMlpNorm, 2),
                      .gate_up = at(kGateUp, 1),
                      .down = at(kDown, 1),
                      .keys = at(kStore, 3),
                      .values = at(kStore, 4),
                      .key_pages = key_pages,
                      .value_pages = value_pages};
}

// Calls f.operator()<k>(), where k is the smallest supported number of rows that is at least `rows`.
template <class F>
auto with_rows(int rows, F&& f) {
  if (rows == 1) return f.template operator()<1>();
  static_assert(kMostRows == 2);
  return f.template operator()<2>();
}

class DecoderLayers final : public BoundOp {
 public:
  DecoderLayers(const Layers& layers, std::unique_ptr<Allocation> words, std::shared_ptr<const DeviceClaim> claim)
      : p_(layers), words_(std::move(words)), claim_(std::move(claim)) {}

  Status enqueue(Stream& stream) const override {
    constexpr const char* kName = "decoder layers";
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch(kName));
    const auto run = [&]<int kRows>() {
      launch_with(decoder_layers::decoder_layers<Shape, kRows>,
                  {.grid = dim3(kBlocks), .block = dim3((kWarps + 1) * kWarp)}, kSharedBytes<kRows>, /*early=*/true,
                  cuda.handle(), p_);
    };
    with_rows(p_.requests.rows, run);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return cuda.launch_error(kName, error);
    return ok_status();
  }

 private:
  std::uint64_t choice() const override {
    return with_rows(p_.requests.rows, [&]<int kRows>() { return static_cast<std::uint64_t>(kRows); });
  }

  Layers p_;
  std::unique_ptr<Allocation> words_;
  std::shared_ptr<const DeviceClaim> claim_;
};

Result<std::unique_ptr<BoundOp>> bind(std::span<const BindArgs> calls) {
  if (!serves(calls)) return std::unique_ptr<BoundOp>();
  std::shared_ptr<const DeviceClaim> claim = claim_device(calls[0]);
  if (claim == nullptr) return std::unique_ptr<BoundOp>();
  const BindArgs& store = calls[1 + kStore];
  const BindArgs& attention = calls[1 + kAttend];
  const auto* plan = static_cast<const AttentionPlan*>(TRY(find_plan(attention)));
  const AttentionMetadata metadata = plan->metadata();
  const auto store_args = qkv_rope_store_args<T, T>(store);
  const int rows = static_cast<int>(calls[0].operands[0].rows());
  Layers p{.layers = {},
           .x = calls[0].operands[0].as<T>(),
           .final_norm = calls.back().operands[2].as<T>(),
           .normed = calls.back().results[0].as<T>(),
           .sum = calls.back().results[1].as<T>(),
           .requests = {.table = store_args.table,
                        .slots = store_args.slots,
                        .page_table = metadata.page_table,
                        .kv_lens = metadata.kv_lens,
                        .num_requests = metadata.num_requests,
                        .num_slots = store_args.num_slots,
                        .rows = rows,
                        .max_pages = static_cast<int>(metadata.max_pages_per_request),
                        .page_size = static_cast<int>(attention.operands[1].dim(1)),
                        .qk_eps = store_args.eps,
                        .scale_log2 = static_cast<float>(attention.node.attribute_or("scale", 1.0)) * kLog2E},
           .words = nullptr,
           .step = nullptr,
           .num_layers = static_cast<int>(calls.size() / kCallsOfLayer),
           .eps = static_cast<float>(calls[0].node.attribute_or("eps", 0.0))};
  for (std::size_t l = 0; l * kCallsOfLayer + 1 < calls.size(); ++l)
    p.layers[l] = TRY(weights_of(calls[l * kCallsOfLayer], calls.subspan(l * kCallsOfLayer + 1, kCallsOfLayer)));

  const std::size_t word_bytes = TRY(with_rows(rows, [&]<int kRows>() -> Result<std::size_t> {
    TRY(allow_shared_memory(reinterpret_cast<const void*>(decoder_layers::decoder_layers<Shape, kRows>),
                            kSharedBytes<kRows>, "decoder layers"));
    return 2 * Words<Shape, kRows>::kTotal * sizeof(TaggedWord);
  }));
  std::unique_ptr<Allocation> words =
      TRY(calls[0].device.allocate(word_bytes + sizeof(std::uint32_t), "words of the decoder layers"));
  TRY(clear_memory(words->data().raw(), words->size(), "decoder layers"));
  p.words = reinterpret_cast<TaggedWord*>(words->data().raw());
  p.step = reinterpret_cast<std::uint32_t*>(words->data().raw() + word_bytes);
  return std::make_unique<DecoderLayers>(p, std::move(words), std::move(claim));
}

}  // namespace

JoinedKernelDef joined_decoder_layers() {
  return {.region = &kDecoderLayers, .name = "decoder layers", .most_rows = kMostRows, .bind = bind};
}

}  // namespace tessera
