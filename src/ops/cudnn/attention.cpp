#include "tessera/ops/cudnn/attention.h"

#include <fmt/format.h>

#ifdef TESSERA_WITH_CUDNN
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <unordered_map>
#include <vector>

#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/cuda_attention_planner.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks cuDNN's functions up
}  // namespace cudnn_frontend
#endif

namespace tessera::cudnn {

#ifdef TESSERA_WITH_CUDNN
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr const char* kLibrary = "libcudnn.so.9";
constexpr std::size_t kOldestVersion = 90700;  // of ragged queries over a paged cache

Status load_library() {
  fe::cudnn_dlhandle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (fe::cudnn_dlhandle == nullptr) return unimplemented(fmt::format("attention on cuDNN: {}", dlerror()));
  const std::size_t version = fe::detail::get_backend_version();
  if (version >= kOldestVersion) return ok_status();
  return unimplemented(fmt::format("attention on cuDNN: version {} is too old, {} is needed", version, kOldestVersion));
}

Status to_status(fe::error_t error, const char* what) {
  if (error.is_good()) return ok_status();
  return internal_error(fmt::format("attention (cudnn): {}: {}", what, error.get_message()));
}

// Identifiers of the graph's tensors in a launch.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kQueryOffsets, kQueryLens, kKvLens, kPages };

class CudnnAttention final : public BoundOp {
 public:
  ~CudnnAttention() override {
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }

  static Result<std::unique_ptr<BoundOp>> create(const CudaAttention& a, const SequencePlan& plan, Device& device) {
    auto op = std::make_unique<CudnnAttention>();
    if (const cudnnStatus_t status = fe::detail::create_handle(&op->handle_); status != CUDNN_STATUS_SUCCESS)
      return internal_error(fmt::format("cudnnCreate: {}", fe::detail::get_error_string(status)));
    op->describe(a);
    TRY(to_status(op->graph_.validate(), "validate"));
    TRY(to_status(op->graph_.build_operation_graph(op->handle_), "build_operation_graph"));
    TRY(to_status(op->graph_.create_execution_plans({fe::HeurMode_t::A}), "create_execution_plans"));
    TRY(to_status(op->graph_.check_support(op->handle_), "check_support"));
    TRY(to_status(op->graph_.build_plans(op->handle_), "build_plans"));
    std::int64_t bytes = 0;
    TRY(to_status(op->graph_.get_workspace_size(bytes), "get_workspace_size"));
    op->workspace_ = TRY(device.allocate(static_cast<std::size_t>(bytes), "cuDNN's workspace"));
    op->memory_ = {{kQ, a.q},
                   {kK, a.k_cache},
                   {kV, a.v_cache},
                   {kOut, a.out},
                   {kQueryOffsets, plan.query_offsets},
                   {kQueryLens, plan.query_lens},
                   {kKvLens, plan.kv_lens},
                   {kPages, const_cast<std::int32_t*>(a.metadata.page_table)}};
    return op;
  }

  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch("attention (cudnn)"));
    try {
      if (const cudnnStatus_t status = fe::detail::set_stream(handle_, cuda.handle()); status != CUDNN_STATUS_SUCCESS)
        return internal_error(fmt::format("cudnnSetStream: {}", fe::detail::get_error_string(status)));
      std::unordered_map<std::int64_t, void*> memory = memory_;
      return to_status(graph_.execute(handle_, memory, workspace_->data()), "execute");
    } catch (const std::exception& error) {
      return internal_error(fmt::format("attention (cudnn): {}", error.what()));
    }
  }

 private:
  // A tensor of integers, one for each request or page.
  Tensor lengths(const char* name, Uid uid, std::int64_t requests, std::int64_t columns = 1) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim({requests, 1, columns, 1})
                             .set_stride({columns, columns, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }

  void describe(const CudaAttention& a) {
    const std::int64_t heads = a.shape.heads;
    const std::int64_t kv_heads = a.shape.kv_heads;
    const std::int64_t dim = a.shape.head_dim;
    const bool decode = a.kind == BatchKind::kDecode;
    const std::int64_t requests = decode ? a.num_rows : a.max_requests();
    const std::int64_t rows = decode ? 1 : a.num_rows;  // of a request, at most
    const std::int64_t max_pages = a.metadata.max_pages_per_request;
    graph_.set_io_data_type(a.shape.dtype == ir::DType::kBFloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);

    const auto matrix = [&](const char* name, Uid uid) {
      return fe::graph::Tensor_attributes().set_name(name).set_uid(uid);
    };
    auto q_attributes =
        matrix("q", kQ).set_dim({requests, heads, rows, dim}).set_stride({rows * heads * dim, dim, heads * dim, 1});
    const Tensor offsets = decode ? nullptr : lengths("query offsets", kQueryOffsets, requests + 1);
    if (!decode) q_attributes.set_ragged_offset(offsets);
    const std::vector<std::int64_t> cache_dims{a.num_pages, kv_heads, a.page_size, dim};
    const std::vector<std::int64_t> cache_strides{a.page_size * kv_heads * dim, dim, kv_heads * dim, 1};
    const Tensor q = graph_.tensor(q_attributes);
    const Tensor k = graph_.tensor(matrix("k", kK).set_dim(cache_dims).set_stride(cache_strides));
    const Tensor v = graph_.tensor(matrix("v", kV).set_dim(cache_dims).set_stride(cache_strides));
    const Tensor pages = lengths("pages", kPages, requests, max_pages);

    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(false)
                       .set_attn_scale(a.scale)
                       .set_padding_mask(true)
                       .set_seq_len_q(lengths("query lengths", kQueryLens, requests))
                       .set_seq_len_kv(lengths("kv lengths", kKvLens, requests))
                       .set_paged_attention_k_table(pages)
                       .set_paged_attention_v_table(pages)
                       .set_paged_attention_max_seq_len_kv(static_cast<int>(max_pages * a.page_size));
    if (!decode) options.set_causal_mask_bottom_right(true);
    const auto [out, stats] = graph_.sdpa(q, k, v, options);
    out->set_output(true).set_uid(kOut).set_dim(q->get_dim()).set_stride(q->get_stride());
    if (!decode) out->set_ragged_offset(offsets);
  }

  fe::graph::Graph graph_;
  cudnnHandle_t handle_ = nullptr;
  std::unique_ptr<Allocation> workspace_;
  std::unordered_map<std::int64_t, void*> memory_;
};

}  // namespace

Status check_available() {
  static const Status status = load_library();
  return status;
}

bool attention_serves(const AttentionShape& shape, int compute_capability) {
  const bool half_width = shape.dtype == ir::DType::kBFloat16 || shape.dtype == ir::DType::kFloat16;
  return compute_capability >= 90 && half_width && (shape.head_dim == 64 || shape.head_dim == 128) &&
         shape.window == 0 && shape.softcap == 0 && check_available().ok();
}

Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention& attention, const CudaAttentionPlanner& planner,
                                                Device& device) {
  try {
    return CudnnAttention::create(attention, planner.sequence_plan(attention.shape), device);
  } catch (const std::exception& error) {
    return internal_error(fmt::format("attention (cudnn): {}", error.what()));
  }
}

#else

Status check_available() { return unimplemented("attention on cuDNN: not built in, its headers were missing"); }
bool attention_serves(const AttentionShape&, int) { return false; }
Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention&, const CudaAttentionPlanner&, Device&) {
  return check_available();
}

#endif

}  // namespace tessera::cudnn
