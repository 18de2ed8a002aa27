// Computes the inputs of the products with the experts' down matrices again, because moe_experts does not return them.
// The device's kernel for linears multiplies by the expert's gate and up matrices. The host then applies the
// activation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_quantised.h"
#include "tessera/runner/observe/operator_observer.h"
#include "tessera/runner/runner_parts.h"

namespace tessera {

// Rows of an operand in host memory.
struct ObservedRows {
  std::span<const std::byte> bytes;
  ir::DType dtype = ir::DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// For each expert, the rows that chose it. If a row chose an expert twice, the row is listed twice.
struct ExpertRows {
  std::vector<std::vector<std::int64_t>> rows_of;  // [experts]

  // `ids` is i32[rows, experts chosen by a row]. Ids outside [0, experts) are ignored. Returns kInternal if `ids` has
  // another type.
  static Result<ExpertRows> of(const ObservedRows& ids, std::int64_t experts);
};

// Copies the given rows of `from` to `to`.
void gather_rows(const ObservedRows& from, std::span<const std::int64_t> rows, std::vector<std::byte>& to);

// The indices of moe_experts' operands. Biases, and the additional operands of quantised matrices, come after these.
namespace experts_operands {
inline constexpr std::size_t kX = 0;
inline constexpr std::size_t kIds = 1;
inline constexpr std::size_t kGateUp = 3;
inline constexpr std::size_t kDown = 4;
}  // namespace experts_operands

class ExpertInputs {
 public:
  // `parts` must outlive this object.
  explicit ExpertInputs(RunnerParts& parts) : parts_(parts) {}

  // Precondition of both functions: `call` is a call of moe_experts whose matrices are not MXFP4.
  static Result<ExpertSizes> sizes(const ObservedCall& call);
  // Computes the inputs of the expert's down matrix, [x.rows, intermediate], for the rows in `x`. `x` holds a subset of
  // the rows of the call's first operand. The result is valid until the next call.
  Result<std::span<const float>> down_inputs(const ObservedCall& call, std::int64_t expert, const ObservedRows& x);

 private:
  Result<TensorView> buffer(std::unique_ptr<Allocation>& memory, ir::DType dtype, std::int64_t rows, std::int64_t cols);
  // Writes the products of `x` with the gate and up matrices to `both_`, [rows, 2 · intermediate].
  Status multiply(const ObservedCall& call, std::int64_t expert, const ObservedRows& x);

  RunnerParts& parts_;
  std::unique_ptr<Allocation> x_;
  std::unique_ptr<Allocation> y_;
  std::unique_ptr<Allocation> workspace_;
  std::vector<std::byte> host_;
  std::vector<float> both_;
  std::vector<float> activated_;
};

}  // namespace tessera
