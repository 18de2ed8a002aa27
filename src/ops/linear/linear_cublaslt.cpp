#include <cublasLt.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/linear/cublaslt_matmul.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera {
namespace {

using namespace cublaslt;

// Returns whether the library accepts the algorithm for these sizes with `workspace_bytes` of workspace.
bool serves(cublasLtHandle_t handle, const Choice& c, std::size_t workspace_bytes) {
  cublasLtMatmulHeuristicResult_t needs{};
  return cublasLtMatmulAlgoCheck(handle, c.matmul.get(), c.w.get(), c.x.get(), c.y.get(), c.y.get(), &c.algorithm,
                                 &needs) == CUBLAS_STATUS_SUCCESS &&
         needs.workspaceSize <= workspace_bytes;
}

// Returns whether the library accepts the algorithm for any number of rows, with each sum computed by one block. Some
// algorithms need a workspace only for few rows, so the function checks row counts of every magnitude, also odd ones.
bool serves_any_rows(cublasLtHandle_t handle, const LinearProblem& p, const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t reduction = 0;
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                           sizeof(reduction), &written) != CUBLAS_STATUS_SUCCESS ||
      reduction != CUBLASLT_REDUCTION_SCHEME_NONE)
    return false;
  for (const std::int64_t rows : {1, 2, 3, 7, 8, 16, 33, 64, 128, 256, 1000, 2048, 8192}) {
    LinearProblem with_rows = p;
    with_rows.m = rows;
    Choice choice;
    choice.algorithm = algorithm;
    if (!describe(with_rows, choice.matmul, choice.w, choice.x, choice.y).ok() || !serves(handle, choice, 0))
      return false;
  }
  return true;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(OpaqueAlgorithm));

// Returns the choice that this process or an earlier one made, or else a new one. Choices for a product with a GELU are
// not kept, because a LinearShape does not say whether there is a GELU.
Result<std::shared_ptr<const Choice>> choose(cublasLtHandle_t handle, const LinearProblem& p, Rows rows) {
  auto choice = std::make_shared<Choice>();
  TRY(describe(p, choice->matmul, choice->w, choice->x, choice->y));
  LinearAlgorithms& algorithms = known_algorithms();
  if (const std::optional<OpaqueAlgorithm> chosen = algorithms.chosen(shape_of(p, rows)); chosen && !p.gelu) {
    choice->algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*chosen);
    if (rows == Rows::kAny ? serves_any_rows(handle, p, choice->algorithm)
                           : serves(handle, *choice, kCublasLtWorkspaceBytes)) {
      algorithms.note(shape_of(p, rows), *chosen);
      return std::shared_ptr<const Choice>(std::move(choice));
    }
  }
  std::array<cublasLtMatmulHeuristicResult_t, 16> offered{};
  int found = 0;
  TRY(ask(handle, p, rows, *choice, std::span(offered).first(rows == Rows::kAny ? offered.size() : 1), found));
  for (int i = 0; i < found; ++i) {
    choice->algorithm = offered[static_cast<std::size_t>(i)].algo;
    if (rows == Rows::kAny && !serves_any_rows(handle, p, choice->algorithm)) continue;
    if (!p.gelu) algorithms.note(shape_of(p, rows), std::bit_cast<OpaqueAlgorithm>(choice->algorithm));
    return std::shared_ptr<const Choice>(std::move(choice));
  }
  return to_status(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", p);
}

// Does what choose() does, but asks the library only once for each shape. A forward has four or five shapes in dozens
// of layers.
Result<std::shared_ptr<const Choice>> cached_choice(cublasLtHandle_t handle, const LinearProblem& p, Rows rows) {
  using Key = std::tuple<cublasLtHandle_t, std::int64_t, std::int64_t, std::int64_t, ir::DType, bool, bool, Rows>;
  static std::mutex mutex;
  static auto* choices = new std::map<Key, std::shared_ptr<const Choice>>;
  const Key key{handle, p.m, p.n, p.k, p.dtype, p.bias != nullptr, p.gelu, rows};
  const std::lock_guard lock(mutex);
  if (const auto it = choices->find(key); it != choices->end()) return it->second;
  std::shared_ptr<const Choice> choice = TRY(choose(handle, p, rows));
  // Eager forwards may have any number of rows, so the size of the cache needs a limit. A full cache is emptied.
  // Operators that are already bound keep their choices; other choices are made again when they are needed. A process
  // makes one choice for each row count and shape. With a hundred row counts and five shapes these are 100 · 5 = 500
  // choices.
  constexpr std::size_t kMostChoices = 2048;
  if (choices->size() >= kMostChoices) choices->clear();
  choices->emplace(key, choice);
  return choice;
}

// Returns a choice that has the algorithm for kReferenceRows rows and the problem's own layouts.
Result<std::shared_ptr<const Choice>> choice_for_any_rows(cublasLtHandle_t handle, const LinearProblem& p) {
  LinearProblem reference = p;
  reference.m = kReferenceRows;
  const std::shared_ptr<const Choice> chosen = TRY(cached_choice(handle, reference, Rows::kAny));
  auto choice = std::make_shared<Choice>();
  TRY(describe(p, choice->matmul, choice->w, choice->x, choice->y));
  choice->algorithm = chosen->algorithm;
  cublasLtMatmulHeuristicResult_t needs{};
  const cublasStatus_t served = cublasLtMatmulAlgoCheck(handle, choice->matmul.get(), choice->w.get(), choice->x.get(),
                                                        choice->y.get(), choice->y.get(), &choice->algorithm, &needs);
  if (served != CUBLAS_STATUS_SUCCESS || needs.workspaceSize > 0)
    return internal_error(
        fmt::format("cuBLASLt's kernel for any number of rows does not serve linear {} [{}, {}] x [{}, {}]: {}",
                    ir::dtype_name(p.dtype), p.m, p.k, p.n, p.k, cublasLtGetStatusString(served)));
  return std::shared_ptr<const Choice>(std::move(choice));
}

class CublasLtLinear final : public BoundOp {
 public:
  CublasLtLinear(const LinearProblem& problem, cublasLtHandle_t handle, std::shared_ptr<const Choice> choice,
                 std::size_t workspace_bytes)
      : p_(problem), handle_(handle), choice_(std::move(choice)), workspace_bytes_(workspace_bytes) {}

  // Makes a descriptor for this operator alone. Operators without a bias share one descriptor per shape. An operator
  // with a bias cannot share it, because the bias's address is an attribute of the descriptor.
  Status own_descriptor() {
    Layout w, x, y;
    TRY(describe(p_, matmul_, w, x, y));
    return set_bias(p_, matmul_);
  }

  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch("linear, cuBLASLt"));
    const float one = 1;
    const float beta = p_.residual == nullptr ? 0 : 1;
    const std::byte* c = p_.residual == nullptr ? p_.y : p_.residual;
    return to_status(
        cublasLtMatmul(handle_, p_.bias == nullptr ? choice_->matmul.get() : matmul_.get(), &one, p_.w,
                       choice_->w.get(), p_.x, choice_->x.get(), &beta, c, choice_->y.get(), p_.y, choice_->y.get(),
                       &choice_->algorithm, p_.workspace, workspace_bytes_, cuda.handle()),
        "cublasLtMatmul", p_);
  }

 private:
  std::uint64_t choice() const override { return variant_of(*choice_, p_); }

  LinearProblem p_;
  cublasLtHandle_t handle_;
  std::shared_ptr<const Choice> choice_;
  std::size_t workspace_bytes_;
  MatmulDesc matmul_;  // this operator's own descriptor, used if there is a bias
};

Result<std::unique_ptr<BoundOp>> make_bound(const LinearProblem& problem, cublasLtHandle_t handle,
                                            std::shared_ptr<const Choice> choice, std::size_t workspace_bytes) {
  auto bound = std::make_unique<CublasLtLinear>(problem, handle, std::move(choice), workspace_bytes);
  if (problem.bias != nullptr) TRY(bound->own_descriptor());
  return bound;
}

}  // namespace

void start_cublaslt(Device& device) {
  const auto ask_once = [&]() -> Status {
    TRY(static_cast<CudaDevice&>(device).make_current());
    LinearProblem any{};
    any.m = 16;
    any.n = any.k = 1024;
    any.dtype = ir::DType::kBFloat16;
    Choice choice;
    TRY(describe(any, choice.matmul, choice.w, choice.x, choice.y));
    std::array<cublasLtMatmulHeuristicResult_t, 1> offered{};
    int found = 0;
    return ask(TRY(library_handle(any, device)), any, Rows::kThese, choice, offered, found);
  };
  static_cast<void>(ask_once());
}

std::string cublaslt_versions() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) static_cast<void>(cudaGetLastError());
  return fmt::format("driver {}, cuBLASLt {}", driver, cublasLtGetVersion());
}

Json cublaslt_algorithms() { return known_algorithms().to_json(); }

Status remember_cublaslt_algorithms(const Json& algorithms) { return known_algorithms().remember(algorithms); }

Result<std::unique_ptr<BoundOp>> bind_cublaslt(const LinearProblem& problem, Device& device) {
  cublasLtHandle_t handle = TRY(library_handle(problem, device));
  std::shared_ptr<const Choice> choice = TRY(cached_choice(handle, problem, Rows::kThese));
  return make_bound(problem, handle, std::move(choice), kCublasLtWorkspaceBytes);
}

Result<std::unique_ptr<BoundOp>> bind_cublaslt_for_any_rows(const LinearProblem& problem, Device& device) {
  cublasLtHandle_t handle = TRY(library_handle(problem, device));
  std::shared_ptr<const Choice> choice = TRY(choice_for_any_rows(handle, problem));
  return make_bound(problem, handle, std::move(choice), 0);
}

}  // namespace tessera
