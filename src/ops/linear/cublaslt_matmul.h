// Describes a linear operator to cuBLASLt, and asks the library for algorithms. Only files that run matrix products
// with the library or measure its algorithms include this header.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/linear/linear_algorithms.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera::cublaslt {

// Turns an error of the library into kResourceExhausted, kUnimplemented or kInternal. The message names the call and
// the sizes.
Status to_status(cublasStatus_t status, std::string_view call, const LinearProblem& p);

// Owns a handle or a descriptor of the library.
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

// Returns the library handle of the thread's current GPU. Each GPU has one handle. Handles are never destroyed, because
// the driver may shut down first at exit.
Result<cublasLtHandle_t> library_handle(const LinearProblem& p, Device& device);

// Holds all that describes a product to the library, except the addresses of its matrices.
struct Choice {
  MatmulDesc matmul;
  Layout w, x, y;
  cublasLtMatmulAlgo_t algorithm;
};

// Describes the product to the library. `operands` is the type of w and x, if it differs from the type of y.
Status describe(const LinearProblem& p, MatmulDesc& matmul, Layout& w, Layout& x, Layout& y,
                std::optional<cudaDataType_t> operands = std::nullopt);

// Returns the product's BoundOp::choice(), a number that identifies the library's code for the product. The library
// selects its code by the algorithm, the epilogue and the alignment of rows.
std::uint64_t variant_of(const Choice& choice, const LinearProblem& p);

// Sets the bias's address, which is an attribute of the description.
Status set_bias(const LinearProblem& p, const MatmulDesc& matmul);

enum class Rows {
  kThese,  // ask for the fastest algorithms for the problem's m
  kAny,    // ask for algorithms that can serve every m
};

LinearShape shape_of(const LinearProblem& p, Rows rows);

// Asks the library for its best algorithms for the problem, with kCublasLtWorkspaceBytes of workspace. The library
// orders `offered` by its own estimate, the best algorithm first.
Status ask(cublasLtHandle_t handle, const LinearProblem& p, Rows rows, const Choice& choice,
           std::span<cublasLtMatmulHeuristicResult_t> offered, int& found);

// Returns the process's table of algorithms. All GPUs of the process share the table, because they are all of one GPU
// type. Callers let the library check an algorithm from the table before they use it.
LinearAlgorithms& known_algorithms();

}  // namespace tessera::cublaslt
