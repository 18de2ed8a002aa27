// Joins quantised_linear with the operators before and after it on CUDA. The gate after the linear is computed from the
// sums. If the linear reads rows in E4M3 or fixed point, the norm or gate before it writes its result in this form, so
// that no separate launch has to convert the rows.
#include <limits>
#include <optional>
#include <span>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/recurrent/converted_output_gate.cuh"
#include "tessera/ops/rows/converted_results.cuh"

namespace tessera {
namespace {

using Way = QuantisedWay;

// Returns whether the kernel reads rows that were converted to E4M3 or fixed point.
bool converts_rows(Way way) { return way == Way::kRoundedRows || way == Way::kFixedPoint; }

// Returns the linear joined with the gate after it. The result is empty in three cases: no kernel supports both; the
// joined and the single linear read x in different forms (plain, rounded, or fixed point); or a library's product and a
// separate gate are faster. The joined linear uses the single linear's workspace, which is large enough because both
// read x in the same form.
std::optional<QuantisedCall> gated_call(const BindArgs& linear, const BindArgs& gate) {
  const QuantisedCall alone = quantised_call(linear);
  if (alone.residual != nullptr) return std::nullopt;
  QuantisedCall call = alone;
  call.gate = cuda::gate_of(gate.node);
  call.y = gate.results[0].data.raw();
  const Way way = choose_way(call);
  const Way way_alone = choose_way(alone);
  const bool converts_alike = way == way_alone || (!converts_rows(way) && !converts_rows(way_alone));
  const bool is_library = way_alone == Way::kDequantised || (way_alone == Way::kRoundedRows && takes_library(alone));
  if (way == Way::kNothing || way == Way::kRefused || way == Way::kPlain || !converts_alike || is_library)
    return std::nullopt;
  return call;
}

Result<std::unique_ptr<BoundOp>> bind_gated(std::span<const BindArgs> calls) {
  TRY(static_cast<CudaDevice&>(calls[0].device).make_current());
  const std::optional<QuantisedCall> call = gated_call(calls[0], calls[1]);
  if (!call || call->deterministic) return std::unique_ptr<BoundOp>();
  return bind_way(choose_way(*call), *call, calls[0].device);
}

// Binds a norm or gate, the linear that reads it, and possibly the gate after the linear.
Result<std::unique_ptr<BoundOp>> bind_after(std::span<const BindArgs> calls) {
  TRY(static_cast<CudaDevice&>(calls[0].device).make_current());
  const std::optional<QuantisedCall> call =
      calls.size() > 2 ? gated_call(calls[1], calls[2]) : std::optional(quantised_call(calls[1]));
  if (!call || call->deterministic) return std::unique_ptr<BoundOp>();
  const Way way = choose_way(*call);
  if (!converts_rows(way) || (way == Way::kRoundedRows && rounds_itself(*call))) return std::unique_ptr<BoundOp>();
  const auto make_rows = [&](const cuda::ConvertedRows& to) {
    std::unique_ptr<BoundOp> before = bind_converted_norm(calls[0], to);
    if (before == nullptr) before = bind_converted_gate(calls[0], to);
    return before != nullptr ? std::move(before) : bind_converted_output_gate(calls[0], to);
  };
  if (way == Way::kFixedPoint) return bind_quantised_fixed(*call, make_rows);
  return bind_quantised_fp8(*call, make_rows, calls[0].device);
}

}  // namespace

const std::vector<JoinedKernelDef>& joined_quantised_kernels() {
  static const std::vector<JoinedKernelDef> kernels = [] {
    constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();
    std::vector<JoinedKernelDef> all;
    for (const std::string_view gate : {"silu_mul", "gelu_mul"}) {
      all.push_back({.ops = {"quantised_linear", gate}, .name = "gated", .most_rows = kAnyRows, .bind = bind_gated});
      for (const std::string_view norm : {"rms_norm", "add_rms_norm"})
        all.push_back({.ops = {norm, "quantised_linear", gate},
                       .name = "converted and gated",
                       .most_rows = kAnyRows,
                       .bind = bind_after});
    }
    for (const std::string_view before :
         {"rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "gated_norm", "sigmoid_gate"})
      all.push_back(
          {.ops = {before, "quantised_linear"}, .name = "converted", .most_rows = kAnyRows, .bind = bind_after});
    return all;
  }();
  return kernels;
}

}  // namespace tessera
