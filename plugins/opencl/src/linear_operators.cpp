// The matrix product (kernels/linear.cl).
#include "operators.h"

namespace opencl {
namespace {

// Of the kernels.
constexpr std::int64_t kFewCols = 8;
constexpr std::int64_t kFewRows = 4;
constexpr std::size_t kFewLanes = 8;
constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileCols = 64;
constexpr std::int64_t kTileItems = 8;  // in each of two dimensions
// From here on reading the weights once for 32 rows is worth the copies to local memory.
constexpr std::int64_t kMostFewRows = 16;

constexpr cl_uint kHasBias = 1;
constexpr cl_uint kHasResidual = 2;

// The two kernels add in different orders, so that a deterministic forward takes one for all numbers of rows.
bool few_rows(const tessera_plugin_call& call) {
  return rows(call.operands[0]) <= kMostFewRows && call.limits->deterministic == 0;
}

std::int64_t groups_of(std::int64_t n, std::int64_t group) { return (n + group - 1) / group; }

std::int32_t bind_linear(Binding& b) {
  const std::int64_t m = rows(b.operand(0));
  const std::int64_t n = b.operand(1).dims[0];
  const std::int64_t k = b.operand(1).dims[1];
  const bool bias = attribute_bool(b.node(), "bias", false);
  const bool residual = attribute_bool(b.node(), "residual", false);
  const tessera_plugin_address bias_at = bias ? b.address(2) : Binding::kNowhere;
  const tessera_plugin_address residual_at = residual ? b.address(bias ? 3 : 2) : Binding::kNowhere;
  const cl_uint flags = (bias ? kHasBias : 0) | (residual ? kHasResidual : 0);
  const bool few = few_rows(b.call());
  const Binding::Grid grid = few ? Binding::Grid{groups_of(n, kFewCols) * static_cast<std::int64_t>(kFewLanes),
                                                 groups_of(m, kFewRows) * kFewCols, kFewLanes, kFewCols}
                                 : Binding::Grid{groups_of(n, kTileCols) * kTileItems,
                                                 groups_of(m, kTileRows) * kTileItems, kTileItems, kTileItems};
  return b.launch(Source::kLinear, few ? "linear_few" : "linear_tiled", {b.operand(0).dtype, TESSERA_PLUGIN_F32}, grid,
                  b.operand(0).data, b.operand(1).data, bias_at, residual_at, b.result(0).data, static_cast<cl_uint>(m),
                  static_cast<cl_uint>(n), static_cast<cl_uint>(k), flags);
}

std::uint64_t variant(const tessera_plugin_call& call) { return few_rows(call) ? 1 : 0; }

constexpr Operator kOperators[] = {{"linear", bind_linear, nullptr, variant}};

}  // namespace

std::span<const Operator> linear_operators() { return kOperators; }

}  // namespace opencl
