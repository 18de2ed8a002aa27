#include "tessera/ops/quantised/quantised_store.h"

#include "tessera/ops/cpu/cpu_math.h"

namespace tessera {
namespace {

template <class T>
TESSERA_CPU_CLONES void store(const QuantisedProblem& p, const float* sums, std::int64_t stride,
                              const ColumnBlock& block, std::int64_t row, std::int64_t rows) {
  const auto* bias = reinterpret_cast<const T*>(p.bias);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = (row + r) * p.n + block.first;
    const auto* residual = p.residual != nullptr ? reinterpret_cast<const T*>(p.residual) + at : nullptr;
    T* y = reinterpret_cast<T*>(p.y) + at;
    for (std::int64_t c = 0; c < block.count; ++c) {
      float sum = sums[r * stride + c];
      if (bias != nullptr) sum += to_float(bias[block.first + c]);
      if (residual != nullptr) sum += to_float(residual[c]);
      y[c] = from_float<T>(sum);
    }
  }
}

}  // namespace

template <class T>
void store_sums(const QuantisedProblem& p, const float* sums, std::int64_t stride, const ColumnBlock& block,
                std::int64_t row, std::int64_t rows) {
  store<T>(p, sums, stride, block, row, rows);
}

template void store_sums<float>(const QuantisedProblem&, const float*, std::int64_t, const ColumnBlock&, std::int64_t,
                                std::int64_t);
template void store_sums<BFloat16>(const QuantisedProblem&, const float*, std::int64_t, const ColumnBlock&,
                                   std::int64_t, std::int64_t);
template void store_sums<Float16>(const QuantisedProblem&, const float*, std::int64_t, const ColumnBlock&, std::int64_t,
                                  std::int64_t);

}  // namespace tessera
