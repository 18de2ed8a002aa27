#include "tessera/ops/sampling/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_log_softmax(const ir::OpSignature& s) {
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_type(s, 0, "x", {ir::DType::kFloat32, s.operands[0].shape}));
  TRY(constant_cols(s, 0, "x"));
  return std::vector{s.operands[0]};
}

// Computes the sum of exponentials in one pass over memory, block by block. The sum is kept relative to the running
// max, and is rescaled when the max grows. The sums of blocks are added in double, so that 150k terms lose no
// precision.
TESSERA_CPU_CLONES void log_softmax_row(const float* x, float* y, std::int64_t n) {
  constexpr std::int64_t kBlock = 2048;
  float greatest = -std::numeric_limits<float>::infinity();
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const float* block = x + i;
    const std::int64_t size = std::min(kBlock, n - i);
    float block_greatest = greatest;
#pragma omp simd reduction(max : block_greatest)
    for (std::int64_t j = 0; j < size; ++j) block_greatest = block[j] > block_greatest ? block[j] : block_greatest;
    if (block_greatest > greatest) {
      sum *= static_cast<double>(fast_exp(greatest - block_greatest));
      greatest = block_greatest;
    }
    // If all values so far are masked, subtracting -inf from -inf would give NaN.
    const float base = std::isinf(greatest) && greatest < 0 ? 0.0f : greatest;
    float block_sum = 0;
#pragma omp simd reduction(+ : block_sum)
    for (std::int64_t j = 0; j < size; ++j) block_sum += fast_exp(block[j] - base);
    sum += static_cast<double>(block_sum);
  }
  // Subtracts `greatest` and log(sum) one after the other. If they were added first, rounding could lose the smaller
  // one.
  const float log_sum = static_cast<float>(std::log(sum));
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) y[j] = (x[j] - greatest) - log_sum;
}

Result<std::unique_ptr<BoundOp>> bind_log_softmax(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  float* y = args.results[0].as<float>();
  const std::int64_t rows = args.operands[0].rows();
  const std::int64_t n = args.operands[0].cols();
  return make_cpu_op("log_softmax", [=] {
    parallel_rows(rows, 2 * n * static_cast<std::int64_t>(sizeof(float)), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) log_softmax_row(x + r * n, y + r * n, n);
    });
  });
}

}  // namespace

const ir::OpDecl kLogSoftmax{
    .name = "log_softmax",
    .summary = "x - log(sum(exp(x))) over each row: f32[R, V] -> f32[R, V]",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_log_softmax,
};

const KernelDef kLogSoftmaxCpu{.op = "log_softmax", .name = "cpu", .bind = bind_log_softmax};

}  // namespace tessera
