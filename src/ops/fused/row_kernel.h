// A row kernel in the form of data: pointwise operators, row reductions and changes of shape that run as one kernel. A
// compiler makes it from a group of operators, and a device turns it into code (row_kernel_builder.h).
//
// A tensor is viewed as `rows` rows: with T rows, a row of f32[T, 4, 8] has 32 elements. Every value is computed for
// one row from values of the same row. Its text form:
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
// A value is rounded to its dtype where it is made, as if it were stored, so a row kernel gives the results of its
// operators run one after another. Sums are float32. The device chooses their order, which depends on the kernel alone.
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
  kRepeat,  // an operand with a single row that is used for every row; element i of a wider value uses element i mod
            // width
  kWeight,  // like kRepeat, for a parameter that no kernel writes
  kSlice,   // `width` elements of the input, from `offset` on
  kAdd,
  kMul,
  kScale,  // the input times `number`
  kCast,
  kSilu,
  kGeluTanh,
  kGeluErf,
  kSoftcap,  // number · tanh(x / number)
  // Inputs x and w: x / sqrt(mean(x²) + number) · w, over runs of the width of w. `form` says how the weight is applied
  // and what is rounded before.
  kRmsNorm,
  kRotary,  // inputs x and table: turns heads of `head_dim` elements by the table's head_dim / 2 cosines and head_dim /
            // 2 sines
};
std::string_view row_op_name(RowOp op);

struct RowValue {
  RowOp op = RowOp::kLoad;
  ir::DType dtype = ir::DType::kFloat32;
  std::int64_t width = 0;                 // elements in a row
  std::vector<int> inputs = {};           // indices of earlier values
  int operand = -1;                       // kLoad, kRepeat, kWeight
  std::int64_t offset = 0;                // kSlice
  std::int64_t head_dim = 0;              // kRotary
  double number = 0;                      // kScale, kSoftcap, kRmsNorm
  NormForm form = NormForm::kRoundFirst;  // kRmsNorm
  friend bool operator==(const RowValue&, const RowValue&) = default;
};

// Writes a value to an operand. `slots` is an int32 value of one element: where it is set, row r goes to row slots[r]
// of the operand, or is not written where the operand has no such row.
struct RowStore {
  int value = -1;
  int operand = -1;
  int slots = -1;
  ir::DType dtype = ir::DType::kFloat32;  // the operand's; the value is rounded to it once more
  friend bool operator==(const RowStore&, const RowStore&) = default;
};

struct RowKernel {
  ir::Dim rows = {};
  int num_operands = 0;  // the instruction's operands, followed by its results
  std::vector<RowValue> values = {};
  std::vector<RowStore> stores = {};
  friend bool operator==(const RowKernel&, const RowKernel&) = default;
};

std::string to_text(const RowKernel& kernel);

// Values that one thread block can compute together, because they are connected by operators that keep positions.
struct RowTask {
  std::int64_t width = 0;
  std::int64_t segment = 0;      // elements in a reduction; 0: the task has no reduction
  std::int64_t head_dim = 0;     // head size of a rotation; 0: the task has no rotation
  std::vector<int> values = {};  // in order; includes values of other tasks that are read through slices
  std::vector<int> stores = {};  // indices into RowKernel::stores
};

inline constexpr int kMaxRowOperands = 24;
inline constexpr std::size_t kMaxRowValues = 64;

// The tasks of a kernel, in the order of their first stores. kUnimplemented, with the reason, for a kernel that no
// device supports: reductions over different runs in one task, a slice of a reduced or rotated value, or too many
// operands.
Result<std::vector<RowTask>> row_tasks(const RowKernel& kernel);

}  // namespace tessera
