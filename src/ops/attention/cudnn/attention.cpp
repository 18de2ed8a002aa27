#include "tessera/ops/attention/cudnn/attention.h"

#include <fmt/format.h>

#ifdef TESSERA_WITH_CUDNN
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/attention/cuda_attention_planner.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend looks up cuDNN's functions through this handle
}  // namespace cudnn_frontend
#endif

namespace tessera::cudnn {

#ifdef TESSERA_WITH_CUDNN
namespace {

namespace fe = cudnn_frontend;
using Attributes = fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Attributes>;

constexpr const char* kLibrary = "libcudnn.so.9";
constexpr std::size_t kOldestVersion = 90700;

Status load_library() {
  fe::cudnn_dlhandle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // the library stays loaded
  if (fe::cudnn_dlhandle == nullptr) return unimplemented(fmt::format("attention on cuDNN: {}", dlerror()));
  const std::size_t version = fe::detail::get_backend_version();
  if (version >= kOldestVersion) return ok_status();
  return unimplemented(fmt::format("attention on cuDNN: version {} is too old, {} is needed", version, kOldestVersion));
}

Status to_status(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return ok_status();
  return internal_error(fmt::format("attention (cudnn): {}: {}", what, fe::detail::get_error_string(status)));
}
Status to_status(fe::error_t error, const char* what) {
  if (error.is_good()) return ok_status();
  return internal_error(fmt::format("attention (cudnn): {}: {}", what, error.get_message()));
}

// The ids of the tensors of cuDNN's graph. A launch passes an address for each id.
enum Uid : std::int64_t { kQ = 1, kK, kV, kOut, kQueryLens, kKvLens, kPages };
using Addresses = std::unordered_map<std::int64_t, void*>;

// A handle of cuDNN. Only one stream uses it at a time, and the device outlives it.
class Handle {
 public:
  static Result<std::shared_ptr<const Handle>> create(const CudaDevice& device) {
    auto handle = std::make_shared<Handle>(device);
    TRY(to_status(fe::detail::create_handle(&handle->handle_), "cudnnCreate"));
    return handle;
  }
  explicit Handle(const CudaDevice& device) : device_(device) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (handle_ == nullptr || !device_.make_current().ok()) return;  // destroying a handle needs its device
    fe::detail::destroy_handle(handle_);
  }
  cudnnHandle_t get() const { return handle_; }

 private:
  const CudaDevice& device_;
  cudnnHandle_t handle_ = nullptr;
};

// A plan that cuDNN compiled for one number of rows, and the plan's scratch memory. Only one stream uses the plan.
class Plan {
 public:
  static Result<std::shared_ptr<const Plan>> create(const CudaAttention& a, std::shared_ptr<const Handle> handle,
                                                    Device& device) {
    auto plan = std::make_shared<Plan>();
    plan->handle_ = std::move(handle);
    plan->describe(a);
    TRY(to_status(plan->graph_.validate(), "validate"));
    TRY(to_status(plan->graph_.build_operation_graph(plan->handle_->get()), "build_operation_graph"));
    TRY(to_status(plan->graph_.create_execution_plans({fe::HeurMode_t::A}), "create_execution_plans"));
    TRY(to_status(plan->graph_.check_support(plan->handle_->get()), "check_support"));
    TRY(to_status(plan->graph_.build_plans(plan->handle_->get()), "build_plans"));
    std::int64_t bytes = 0;
    TRY(to_status(plan->graph_.get_workspace_size(bytes), "get_workspace_size"));
    plan->workspace_ = TRY(device.allocate(static_cast<std::size_t>(bytes), "cuDNN's workspace"));
    return plan;
  }

  Status execute(Addresses addresses, cudaStream_t stream) const {
    TRY(to_status(fe::detail::set_stream(handle_->get(), stream), "cudnnSetStream"));
    return to_status(graph_.execute(handle_->get(), addresses, workspace_->data().raw()), "execute");
  }

 private:
  static Attributes matrix(const char* name, Uid uid, std::vector<std::int64_t> dims,
                           std::vector<std::int64_t> strides) {
    return Attributes().set_name(name).set_uid(uid).set_dim(dims).set_stride(strides);
  }
  // Describes a tensor of integers, [requests, columns].
  Tensor integers(const char* name, Uid uid, std::int64_t requests, std::int64_t columns = 1) {
    return graph_.tensor(
        matrix(name, uid, {requests, 1, columns, 1}, {columns, columns, 1, 1}).set_data_type(fe::DataType_t::INT32));
  }

  // Describes attention to cuDNN. Each request has one query row, and its keys and values are in its pages. Padding
  // requests have lengths of zero.
  void describe(const CudaAttention& a) {
    const AttentionShape& shape = a.shape;
    const std::int64_t rows = a.num_rows;
    const std::int64_t dim = shape.head_dim;
    const std::int64_t max_pages = a.metadata.max_pages_per_request;
    graph_.set_io_data_type(shape.dtype == ir::DType::kBFloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);

    const std::vector<std::int64_t> row_dims{rows, shape.heads, 1, dim};
    const std::vector<std::int64_t> row_strides{shape.heads * dim, dim, shape.heads * dim, 1};
    const std::vector<std::int64_t> cache_dims{a.num_pages, shape.kv_heads, a.page_size, dim};
    const std::int64_t token = shape.kv_heads * dim;
    const std::vector<std::int64_t> cache_strides{a.page_size * token, dim, token, 1};
    const Tensor q = graph_.tensor(matrix("q", kQ, row_dims, row_strides));
    const Tensor k = graph_.tensor(matrix("k", kK, cache_dims, cache_strides));
    const Tensor v = graph_.tensor(matrix("v", kV, cache_dims, cache_strides));
    const Tensor pages = integers("pages", kPages, rows, max_pages);
    const auto [out, stats] =
        graph_.sdpa(q, k, v,
                    fe::graph::SDPA_attributes()
                        .set_name("attention")
                        .set_generate_stats(false)
                        .set_attn_scale(a.scale)
                        .set_padding_mask(true)
                        .set_seq_len_q(integers("query lengths", kQueryLens, rows))
                        .set_seq_len_kv(integers("kv lengths", kKvLens, rows))
                        .set_paged_attention_k_table(pages)
                        .set_paged_attention_v_table(pages)
                        .set_paged_attention_max_seq_len_kv(static_cast<int>(max_pages * a.page_size)));
    out->set_output(true).set_uid(kOut).set_dim(row_dims).set_stride(row_strides);
  }

  std::shared_ptr<const Handle> handle_;
  fe::graph::Graph graph_;
  std::unique_ptr<Allocation> workspace_;
};

class CudnnAttention final : public BoundOp {
 public:
  CudnnAttention(std::shared_ptr<const Plan> plan, Addresses addresses)
      : plan_(std::move(plan)), addresses_(std::move(addresses)) {}

  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch("attention (cudnn)"));
    try {
      return plan_->execute(addresses_, cuda.handle());
    } catch (const std::exception& error) {
      return internal_error(fmt::format("attention (cudnn): {}", error.what()));
    }
  }

 private:
  // Returns the plan's address, which identifies the plan's kernels. Each plan has its own kernels, and exists as long
  // as the runner, so no other plan can get the same address.
  std::uint64_t choice() const override { return reinterpret_cast<std::uintptr_t>(plan_.get()); }

  std::shared_ptr<const Plan> plan_;
  Addresses addresses_;
};

}  // namespace

struct PlanCache::Entries {
  struct Entry {
    AttentionShape shape;
    float scale;
    std::int64_t num_rows;
    std::shared_ptr<const Plan> plan;
  };
  std::shared_ptr<const Handle> handle;
  std::vector<Entry> all;

  Result<std::shared_ptr<const Plan>> find_or_make(const CudaAttention& a, Device& device) {
    for (const Entry& entry : all)
      if (entry.shape == a.shape && entry.scale == a.scale && entry.num_rows == a.num_rows) return entry.plan;
    if (handle == nullptr) {
      TRY(device.begin_initialisation("cuDNN"));
      handle = TRY(Handle::create(static_cast<const CudaDevice&>(device)));
    }
    std::shared_ptr<const Plan> plan = TRY(Plan::create(a, handle, device));
    all.push_back({a.shape, a.scale, a.num_rows, plan});
    return plan;
  }
};

Status check_available() {
  static const Status status = load_library();
  return status;
}

bool attention_serves(const AttentionShape& shape, BatchKind kind, int compute_capability) {
  const bool half_width = shape.dtype == ir::DType::kBFloat16 || shape.dtype == ir::DType::kFloat16;
  return kind == BatchKind::kDecode && compute_capability >= 90 && half_width &&
         (shape.head_dim == 64 || shape.head_dim == 128) && shape.window == 0 && shape.softcap == 0 && !shape.sinks &&
         check_available().ok();
}

Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention& a, const CudaAttentionPlanner& planner,
                                                PlanCache& plans, Device& device) {
  try {
    std::shared_ptr<const Plan> plan = TRY(plans.entries_->find_or_make(a, device));
    const SequencePlan lengths = planner.sequence_plan(a.shape);
    return std::make_unique<CudnnAttention>(std::move(plan),
                                            Addresses{{kQ, a.q},
                                                      {kK, a.k_cache},
                                                      {kV, a.v_cache},
                                                      {kOut, a.out},
                                                      {kQueryLens, lengths.query_lens},
                                                      {kKvLens, lengths.kv_lens},
                                                      {kPages, const_cast<std::int32_t*>(a.metadata.page_table)}});
  } catch (const std::exception& error) {
    return internal_error(fmt::format("attention (cudnn): {}", error.what()));
  }
}

#else

struct PlanCache::Entries {};
Status check_available() { return unimplemented("attention on cuDNN: not built in, its headers were missing"); }
bool attention_serves(const AttentionShape&, BatchKind, int) { return false; }
Result<std::unique_ptr<BoundOp>> bind_attention(const CudaAttention&, const CudaAttentionPlanner&, PlanCache&,
                                                Device&) {
  return check_available();
}

#endif

PlanCache::PlanCache() : entries_(std::make_unique<Entries>()) {}
PlanCache::~PlanCache() = default;

}  // namespace tessera::cudnn
