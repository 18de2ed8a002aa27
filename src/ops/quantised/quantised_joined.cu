// Joins quantised_linear with the operators before and after it on CUDA. The gate after the linear is computed from the
// sums. The norm or gate before the linear writes rounded rows if the linear reads rounded rows, so that no separate
// launch rounds them.
#include <limits>
#include <optional>
#include <span>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/quantised/quantised_kernels.cuh"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/recurrent/rounded_output_gate.cuh"
#include "tessera/ops/rows/rounded_results.cuh"

namespace tessera {
namespace {

using Way = QuantisedWay;

// Returns the linear joined with the gate after it. The result is empty in three cases: no kernel supports both; the
// joined linear rounds rows and the single linear does not, or the reverse; or a library's product and a separate gate
// are faster. The workspace is the single linear's, which is enough because either both linears round rows, or neither
// of them does.
std::optional<QuantisedCall> gated_call(const BindArgs& linear, const BindArgs& gate) {
  const QuantisedCall alone = quantised_call(linear);
  if (alone.residual != nullptr) return std::nullopt;
  QuantisedCall call = alone;
  call.gate = cuda::gate_of(gate.node);
  call.y = gate.results[0].data.raw();
  const Way way = choose_way(call);
  const Way way_alone = choose_way(alone);
  const bool rounds_alike = (way == Way::kRoundedRows) == (way_alone == Way::kRoundedRows);
  const bool is_library = way_alone == Way::kDequantised || (way_alone == Way::kRoundedRows && takes_library(alone));
  if (way == Way::kNothing || way == Way::kRefused || way == Way::kPlain || !rounds_alike || is_library)
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
  if (!call || call->deterministic || choose_way(*call) != Way::kRoundedRows || rounds_itself(*call))
    return std::unique_ptr<BoundOp>();
  const auto make_rows = [&](const cuda::RoundedRows& to) {
    std::unique_ptr<BoundOp> before = bind_rounded_norm(calls[0], to);
    if (before == nullptr) before = bind_rounded_gate(calls[0], to);
    return before != nullptr ? std::move(before) : bind_rounded_output_gate(calls[0], to);
  };
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
                       .name = "rounded and gated",
                       .most_rows = kAnyRows,
                       .bind = bind_after});
    }
    for (const std::string_view before :
         {"rms_norm", "add_rms_norm", "silu_mul", "gelu_mul", "gated_norm", "sigmoid_gate"})
      all.push_back(
          {.ops = {before, "quantised_linear"}, .name = "rounded", .most_rows = kAnyRows, .bind = bind_after});
    return all;
  }();
  return kernels;
}

}  // namespace tessera
