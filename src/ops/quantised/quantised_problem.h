// The arguments of one quantised_linear for its kernels on any device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/linear/linear_problem.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// y[m, n] = x[m, k] · wᵀ + bias[n] + residual[m, n], where w is [n, k]. x, bias, residual and y have one dtype. bias
// and residual may be null.
struct QuantisedProblem {
  // The rounding of x for which the checkpoint was made (quantised_linear.h).
  enum class Inputs : std::uint8_t { kPlain, kToken, kGroup, kBlock };

  QuantisedMatrix w;
  const std::byte* x = nullptr;
  const std::byte* bias = nullptr;
  const std::byte* residual = nullptr;
  std::byte* y = nullptr;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  ir::DType dtype = ir::DType::kFloat32;
  Inputs inputs = Inputs::kPlain;
  std::byte* workspace = nullptr;
  std::int64_t workers = 1;  // threads or multiprocessors that the kernel may use
};

// Makes the problem from the arguments of bind(). Precondition: the shape rule has accepted the node.
QuantisedProblem make_quantised_problem(const BindArgs& args);

// Returns the same product as a LinearProblem, in which w consists of plain numbers. The caller sets w's address and
// the workspace.
LinearProblem without_matrix(const QuantisedProblem& p);

}  // namespace tessera
