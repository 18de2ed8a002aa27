// CUDA's kernels for a quantised_linear. quantised_linear.cu chooses among them at bind time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/converted_rows.cuh"
#include "tessera/ops/linear/linear_gate.cuh"
#include "tessera/ops/quantised/quantised_problem.h"

namespace tessera {

// One quantised_linear, alone or with the gate after it. With a gate, w has n / 2 gate rows above n / 2 up rows, y is
// the gate's result [m, n / 2], and there is no residual.
struct QuantisedCall : QuantisedProblem {
  cuda::Gate gate = cuda::Gate::kNone;
  bool deterministic = false;

  std::int64_t y_columns() const { return gate == cuda::Gate::kNone ? n : n / 2; }
};

// Binds the kernel in which a warp computes up to eight elements of a column of y, in float32. It supports every
// format, type and size, but no gate. A row's bits do not depend on the number of rows.
Result<std::unique_ptr<BoundOp>> bind_quantised_plain(const QuantisedCall& call);

// Returns whether the streamed kernel supports the call: up to 16 rows of a 16-bit type, whole tiles, and a common
// format (quantised_streamed.cuh). The kernel needs Hopper. The order of its sums does not depend on the number of
// rows, but a deterministic forward does not use it, because more than 16 rows would use another kernel.
bool quantised_streamed_serves(const QuantisedCall& call);
Result<std::unique_ptr<BoundOp>> bind_quantised_streamed(const QuantisedCall& call);

// Returns whether the kernel for very few rows (quantised_staged.cuh) supports the call and is faster than the streamed
// kernel. The kernel for very few rows supports the same calls, if x is small enough for shared memory.
bool quantised_staged_serves(const QuantisedCall& call);
Result<std::unique_ptr<BoundOp>> bind_quantised_staged(const QuantisedCall& call);

// Returns whether the format is int4 in groups of 128 columns with float32 scales, in the columns' original order. The
// kernels that apply scales to sums of groups support this format.
inline bool is_int4_in_groups(const QuantisedFormat& f) {
  return f.values == QuantisedFormat::Values::kInt4 && f.scales == QuantisedFormat::Scales::kFloat32 &&
         f.group_rows == 1 && f.group_cols == 128 && !f.groups && !f.factor;
}

// Returns whether the kernel of tiles supports the call: any number of rows of a 16-bit type, and a common format
// (quantised_tiles.cuh, quantised_groups.cuh). The kernel needs Hopper. In a deterministic forward the order of sums
// does not depend on the number of rows.
bool quantised_tiles_serve(const QuantisedCall& call);
Result<std::unique_ptr<BoundOp>> bind_quantised_tiles(const QuantisedCall& call);

// Returns whether to convert w to 16-bit numbers in scratch memory, so that cuBLASLt can compute the product. This
// needs a 16-bit type, 1024 rows or more, a converted matrix of at most 256 MiB, no gate, and a forward that is not
// deterministic. If the kernel of tiles supports the call too, that kernel is used instead, because it is faster at any
// number of rows.
bool quantised_dequantised_serves(const QuantisedCall& call);
std::size_t quantised_dequantised_workspace(const QuantisedCall& call);  // in bytes
Result<std::unique_ptr<BoundOp>> bind_quantised_dequantised(const QuantisedCall& call, Device& device);

// Returns whether the kernels of rounded rows support the call: values in E4M3, a checkpoint that was made for inputs
// rounded by groups or rows, and 16-bit types (quantised_fp8.cuh). The kernels need Hopper and a workspace. In a
// deterministic forward the order of sums does not depend on the number of rows.
bool quantised_fp8_serves(const QuantisedCall& call);
// Returns whether the kernel that computes the product of rounded rows also rounds x. If so, no kernel before it rounds
// x.
bool rounds_itself(const QuantisedCall& call);
// Returns whether cuBLASLt computes the product of rounded rows (rounded_library.h). cuBLASLt computes no gate.
bool takes_library(const QuantisedCall& call);
std::size_t quantised_fp8_workspace(const QuantisedCall& call);  // in bytes
// A function that binds the operator which writes the converted rows to `to`. The product reads them from there.
using MakeRows = std::function<std::unique_ptr<BoundOp>(const cuda::ConvertedRows& to)>;
// Binds the rounding and the product. If `make_rows` is empty, the product or a separate launch rounds call.x. Returns
// null if make_rows returns null.
Result<std::unique_ptr<BoundOp>> bind_quantised_fp8(const QuantisedCall& call, const MakeRows& make_rows,
                                                    Device& device);

// Returns whether the kernel of rows in fixed point supports the call: up to 32 rows of a 16-bit type, int4 in groups
// of 128 columns, a multiple of 512 columns, and a forward that is not deterministic (quantised_fixed.cuh). The kernel
// needs Hopper, and a workspace.
inline constexpr std::int64_t kMostFixedPointRows = 32;
bool quantised_fixed_serves(const QuantisedCall& call);
std::size_t quantised_fixed_workspace(const QuantisedCall& call);  // in bytes; more rows never need less
// Binds the conversion and the product. If `make_rows` is empty, a separate launch converts call.x. Returns null if
// make_rows returns null.
Result<std::unique_ptr<BoundOp>> bind_quantised_fixed(const QuantisedCall& call, const MakeRows& make_rows);

// The kernels among which quantised_linear.cu chooses.
enum class QuantisedWay {
  kNothing,
  kRefused,
  kStaged,
  kStreamed,
  kRoundedRows,
  kFixedPoint,
  kDequantised,
  kTiles,
  kPlain
};
QuantisedWay choose_way(const QuantisedCall& call);
Result<std::unique_ptr<BoundOp>> bind_way(QuantisedWay way, const QuantisedCall& call, Device& device);
// Returns a QuantisedCall that describes one quantised_linear. The call has no gate.
QuantisedCall quantised_call(const BindArgs& args);

}  // namespace tessera
