// A row kernel: pointwise operators, row reductions and changes of shape as one kernel, as data. A compiler makes it of
// a group of operators; a device turns it into code (row_kernel_builder.h).
//
// All tensors are seen as `rows` rows of as many elements as belong to one row: a row of f32[T, 4, 8] has 32. Every
// value is computed for one row from values of the same row. Its text form:
//
//   rows T
//   %0: bf16[64] = load operand 0
//   %1: bf16[64] = load operand 1
//   %2: bf16[64] = weight operand 2
//   %3: bf16[64] = add(%0, %1)
//   %4: bf16[64] = rms_norm(%3, %2) {eps = 1e-06}
//   store %4 in operand 3: bf16
//   store %3 in operand 4: bf16
//
// A value is rounded to its dtype where it is made, as if it were stored: a row kernel computes what the operators
// compute one after another. Sums are float32; their order is the device's, and depends on the kernel alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"
#include "tessera/ops/rows/norm_form.h"

namespace tessera {

enum class RowOp : std::uint8_t {
  kLoad,    // the row of an operand
  kRepeat,  // an operand that is one row, used for every row; element i of a wider value meets element i mod width
  kWeight,  // the same, of a parameter: no kernel writes it
  kSlice,   // `width` elements of the input, from `offset` on
  kAdd,
  kMul,
  kScale,  // times `number`
  kCast,
  kSilu,
  kGeluTanh,
  kGeluErf,
  kSoftcap,  // number · tanh(x / number)
  // x, w: x / sqrt(mean(x²) + number) · w over runs of as many elements as w has; with round_once, rounded once; with
  // unit_offset · (1 + w) as well
  kRmsNorm,
  kRotary,  // x, table: heads of `head_dim` elements, turned by the table's cosines and sines (head_dim / 2 of each)
};
std::string_view row_op_name(RowOp op);

struct RowValue {
  RowOp op = RowOp::kLoad;
  ir::DType dtype = ir::DType::kFloat32;
  std::int64_t width = 0;                 // elements of a row
  std::vector<int> inputs = {};           // earlier values
  int operand = -1;                       // kLoad, kRepeat, kWeight
  std::int64_t offset = 0;                // kSlice
  std::int64_t head_dim = 0;              // kRotary
  double number = 0;                      // kScale, kSoftcap, kRmsNorm
  NormForm form = NormForm::kRoundFirst;  // kRmsNorm
  friend bool operator==(const RowValue&, const RowValue&) = default;
};

// Writes a value to an operand. With `slots`, an int32 value of one element, row r goes to row slots[r] of the operand,
// or nowhere where it has no such row.
struct RowStore {
  int value = -1;
  int operand = -1;
  int slots = -1;
  ir::DType dtype = ir::DType::kFloat32;  // of the operand; the value is rounded once more
  friend bool operator==(const RowStore&, const RowStore&) = default;
};

struct RowKernel {
  ir::Dim rows = {};
  int num_operands = 0;  // operands and then results of the instruction
  std::vector<RowValue> values = {};
  std::vector<RowStore> stores = {};
  friend bool operator==(const RowKernel&, const RowKernel&) = default;
};

std::string to_text(const RowKernel& kernel);

// Values that one thread block can compute together: they are connected by operators that keep positions.
struct RowTask {
  std::int64_t width = 0;
  std::int64_t segment = 0;      // elements of a reduction; 0: there is none
  std::int64_t head_dim = 0;     // of a rotation; 0: there is none
  std::vector<int> values = {};  // in order, those of other tasks that are read through slices included
  std::vector<int> stores = {};  // indices into RowKernel::stores
};

inline constexpr int kMaxRowOperands = 24;
inline constexpr std::size_t kMaxRowValues = 64;

// The tasks of a kernel, in the order of their first stores. kUnimplemented, with the reason, for a kernel that no
// device's code is made for: reductions over different runs in one task, a part of what was reduced or rotated, too
// many operands.
Result<std::vector<RowTask>> row_tasks(const RowKernel& kernel);

}  // namespace tessera
