// A matrix [N, K] of small values with scales, in the form that operators take. Element (n, k) is
//
//   w[n, k] = (value[n, k] − zero[n, g]) · scale[n / group_rows, g] · factor[n] + offset[n, g],   g = k / group_cols
//
//   values  u8[N, K] or u8[N, K / 2]: one value per byte, or two values per byte, the first in the lower half
//     "e4m3"  a sign, four bits of exponent, three of mantissa (Micikevicius et al., arXiv 2209.05433); 0x7f is NaN
//     "int8"  −128 … 127
//     "int4"  0 … 15 without a sign; without zeros and offsets, the zero is 8
//     "e2m1"  a sign, two bits of exponent, one of mantissa (OCP Microscaling Formats 1.0): ±0, 0.5, 1, 1.5, 2, 3, 4, 6
//   scales  [⌈N / group_rows⌉, ⌈K / group_cols⌉]
//     "f32"   f32
//     "e4m3"  u8 with the bits of "e4m3" above
//     "f16"   f16
//     "pairs" f16[N, 2 ⌈K / group_cols⌉]: the scale and the offset of each group alternate; the zero is 0, and
//             group_rows is 1. Other scales have no offsets.
//   factor  f32[N], if present: the second scale of NVFP4
//   zeros   u8[N, ⌈K / group_cols⌉], if present; only for int4
//   groups  i32[K], if present: g of each column, in place of k / group_cols
//
// A matrix of GGUF's blocks (block_types.h) has its scales in the blocks. So its only operand is the one below, and
// only the attribute `values` describes it:
//
//   values  u8[N, bytes of a row of blocks], in the order of blocks/packed_layout.h: "q8_0", "q4_k" and others, as the
//           format's tools call the types, in lower case
//
// If several matrices were joined into one, each row keeps the scales of the matrix from which it comes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/quantised/blocks/block_matrix.h"

namespace tessera {

// The number of neighbouring values of a row that share a scale in NVFP4.
inline constexpr std::int64_t kNvfp4Group = 16;

struct QuantisedFormat {
  enum class Values : std::uint8_t { kE4M3, kInt8, kInt4, kE2M1, kBlocks };
  enum class Scales : std::uint8_t { kFloat32, kE4M3, kFloat16, kPairs };

  Values values = Values::kE4M3;
  Scales scales = Scales::kFloat32;
  std::int64_t group_rows = 1;
  std::int64_t group_cols = 1;
  bool factor = false;
  bool zeros = false;
  bool groups = false;
  BlockType blocks = BlockType::kQ8_0;  // the type of the blocks if `values` is kBlocks

  bool is_blocks() const { return values == Values::kBlocks; }
  // Returns the number of values in a byte. Precondition: `values` is not kBlocks.
  std::int64_t values_of_byte() const { return values == Values::kInt4 || values == Values::kE2M1 ? 2 : 1; }
  // Returns the bytes that a group's scale takes, together with its offset if the scales are "pairs".
  std::int64_t scale_bytes() const { return scales == Scales::kE4M3 ? 1 : scales == Scales::kFloat16 ? 2 : 4; }
  // Returns the zero of int4 values if no zeros are stored.
  int default_zero() const { return scales == Scales::kPairs ? 0 : 8; }
  // Returns the number of operands that hold the matrix: values, scales and the optional ones, in that order.
  std::size_t num_operands() const {
    return is_blocks() ? 1 : 2 + std::size_t{factor} + std::size_t{zeros} + std::size_t{groups};
  }

  // attributes() converts the format to a node's attributes, and of() makes the format from a node's attributes. If an
  // attribute is wrong, of() returns kInvalidArgument, and the message names the attribute.
  ir::Attributes attributes() const;
  static Result<QuantisedFormat> of(const ir::Node& node);
};

// Returns the type of blocks that `values` names, or null if it names no type that operators support.
const BlockTypeInfo* block_values(std::string_view values);

// Returns the declarations of the attributes that hold a QuantisedFormat. An operator with a quantised matrix has them.
std::vector<ir::AttributeDecl> quantised_attributes();

// N and K of a matrix. expect_quantised() checks the operands from `first` on, as a part of a shape rule, and returns N
// and K.
struct MatrixSize {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
Result<MatrixSize> expect_quantised(const ir::OpSignature& s, std::size_t first, const QuantisedFormat& format);

// The matrix in memory. Absent operands are null.
struct QuantisedMatrix {
  QuantisedFormat format;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t num_groups = 0;  // number of scales of a row
  const std::uint8_t* values = nullptr;
  const std::byte* scales = nullptr;
  const float* factor = nullptr;
  const std::uint8_t* zeros = nullptr;
  const std::int32_t* groups = nullptr;

  std::int64_t row_bytes() const { return format.is_blocks() ? blocks().row_bytes() : cols / format.values_of_byte(); }
  // Returns the matrix as a BlockMatrix. Precondition: the format is one of blocks.
  BlockMatrix blocks() const { return {.type = format.blocks, .rows = rows, .cols = cols, .data = values}; }
};

// Returns the error for an operator with GGUF's blocks on a device that has no kernels for them. `op` is the operator's
// name.
Status refuse_blocks(std::string_view op, BlockType type);

// Makes the matrix from a node's operands. Precondition: expect_quantised() accepted the operands.
QuantisedMatrix make_quantised_matrix(const QuantisedFormat& format, std::span<const TensorView> operands);

}  // namespace tessera
