// Implements the matrix product (kernels/linear.cl).
#include "operators.h"

namespace opencl {
namespace {

// Tile sizes of the kernels.
constexpr std::int64_t kFewCols = 8;
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kFewLanes = 8;
constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileCols = 64;
constexpr std::int64_t kTileItems = 8;  // number of work-items of a group in each of two dimensions
// Above this number of rows, reading the weights once for 32 rows is worth the copies to local memory.
constexpr std::int64_t kMostFewRows = 16;

constexpr cl_uint kHasBias = 1;
constexpr cl_uint kHasResidual = 2;

enum Kernel : std::uint64_t { kOne, kFew, kTiled };
constexpr const char* kNames[] = {"linear_one", "linear_few", "linear_tiled"};

// The tiled kernel sums in another order than the other kernels. A deterministic forward therefore uses the tiled
// kernel for any number of rows.
Kernel choose_kernel(const tessera_plugin_call& call) {
  const std::int64_t m = rows(call.operands[0]);
  if (m > kMostFewRows || call.limits->deterministic != 0) return kTiled;
  return m == 1 ? kOne : kFew;
}

Binding::Grid grid_of(Kernel kernel, std::int64_t m, std::int64_t n) {
  const auto groups_of = [](std::int64_t size, std::int64_t group) { return (size + group - 1) / group; };
  if (kernel == kTiled)
    return {groups_of(n, kTileCols) * kTileItems, groups_of(m, kTileRows) * kTileItems, kTileItems, kTileItems};
  const std::int64_t group_rows = kernel == kOne ? 1 : kFewRows;
  return {groups_of(n, kFewCols) * kFewLanes, groups_of(m, group_rows) * kFewCols, kFewLanes, kFewCols};
}

std::int32_t bind_linear(Binding& b) {
  const std::int64_t m = rows(b.operand(0));
  const std::int64_t n = b.operand(1).dims[0];
  const std::int64_t k = b.operand(1).dims[1];
  const bool bias = attribute_bool(b.node(), "bias", false);
  const bool residual = attribute_bool(b.node(), "residual", false);
  const tessera_plugin_address bias_at = bias ? b.address(2) : Binding::kNowhere;
  const tessera_plugin_address residual_at = residual ? b.address(bias ? 3 : 2) : Binding::kNowhere;
  const Kernel kernel = choose_kernel(b.call());
  return b.launch(Source::kLinear, kNames[kernel], {b.operand(0).dtype, TESSERA_PLUGIN_F32}, grid_of(kernel, m, n),
                  b.operand(0).data, b.operand(1).data, bias_at, residual_at, b.result(0).data, static_cast<cl_uint>(m),
                  static_cast<cl_uint>(n), static_cast<cl_uint>(k),
                  (bias ? kHasBias : 0) | (residual ? kHasResidual : 0));
}

std::uint64_t variant(const tessera_plugin_call& call) { return choose_kernel(call); }

constexpr Operator kOperators[] = {{"linear", bind_linear, nullptr, variant}};

}  // namespace

std::span<const Operator> linear_operators() { return kOperators; }

}  // namespace opencl
