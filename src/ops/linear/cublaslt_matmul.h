// A linear as cuBLASLt sees it: its description, and the algorithms that the library offers for it. Private to the
// files that bind linears to the library and measure its algorithms.
#pragma once

#include <cublasLt.h>

#include <span>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/linear/linear_algorithms.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera::cublaslt {

// kResourceExhausted, kUnimplemented or kInternal, with the call and the sizes.
Status to_status(cublasStatus_t status, std::string_view call, const LinearProblem& p);

// Owns a handle or descriptor of the library.
template <class T, cublasStatus_t (*kDestroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Owned() {
    if (value_ != nullptr) kDestroy(value_);
  }
  T get() const { return value_; }
  T* out() { return &value_; }

 private:
  T value_ = nullptr;
};
using MatmulDesc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// The handle of the thread's current GPU; each GPU has one. Handles are never destroyed, because at exit the driver may
// end first.
Result<cublasLtHandle_t> library_handle(const LinearProblem& p, Device& device);

// Everything of a product but its addresses.
struct Choice {
  MatmulDesc matmul;
  Layout w, x, y;
  cublasLtMatmulAlgo_t algorithm;
};

Status describe(const LinearProblem& p, MatmulDesc& matmul, Layout& w, Layout& x, Layout& y);

// The bias's address, which is an attribute of the description.
Status set_bias(const LinearProblem& p, const MatmulDesc& matmul);

enum class Rows {
  kThese,  // the fastest for the problem's m
  kAny,    // one for all m
};

LinearShape shape_of(const LinearProblem& p, Rows rows);

// The library's best algorithms for the problem with kCublasLtWorkspaceBytes of workspace, the best first by its own
// estimate.
Status ask(cublasLtHandle_t handle, const LinearProblem& p, Rows rows, const Choice& choice,
           std::span<cublasLtMatmulHeuristicResult_t> offered, int& found);

// One table for the process: its GPUs are of one kind, and each checks what it takes from the table.
LinearAlgorithms& known_algorithms();

}  // namespace tessera::cublaslt
