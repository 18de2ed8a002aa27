// A row kernel is a description of one kernel that computes several pointwise operators, row reductions and changes of
// shape. A compiler pass makes it from a group of operators, and a device turns it into code (row_kernel_builder.h).
//
// Every tensor is treated as `rows` rows: a row of f32[T, 4, 8] has 32 elements. Every value is computed for one row
// from values of the same row. The text form of a row kernel:
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
// A value is rounded to its dtype when it is computed, as if it were stored. So a row kernel computes what the
// operators compute one after another. Sums are float32. The device chooses the order of additions, which is always the
// same for one kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"
#include "tessera/ops/contract/norm_form.h"

namespace tessera {

enum class RowOp : std::uint8_t {
  kLoad,    // the row of an operand
  kRepeat,  // an operand with one row, used for every row; element i of a wider value uses element i mod width
  kWeight,  // like kRepeat, for a parameter that no kernel writes
  kSlice,   // `width` elements of the input, beginning at `offset`
  kAdd,
  kMul,
  kScale,  // the input times `number`
  kCast,
  kSilu,
  kGeluTanh,
  kGeluErf,
  kSoftcap,  // number · tanh(x / number)
  // x / sqrt(mean(x²) + number) · w, for the inputs x and w. x is cut into sequences as long as w, and each sequence
  // has its own mean. In the form kRoundOnce only the final product is rounded. kUnitOffset rounds in the same way, and
  // multiplies by 1 + w.
  kRmsNorm,
  kRotary,  // inputs x and table: rotates heads of `head_dim` elements; the table has head_dim / 2 cosines, then sines
};
std::string_view row_op_name(RowOp op);

struct RowValue {
  RowOp op = RowOp::kLoad;
  ir::DType dtype = ir::DType::kFloat32;
  std::int64_t width = 0;                 // elements in a row
  std::vector<int> inputs = {};           // indices of earlier values
  int operand = -1;                       // used by kLoad, kRepeat and kWeight
  std::int64_t offset = 0;                // used by kSlice
  std::int64_t head_dim = 0;              // used by kRotary
  double number = 0;                      // used by kScale, kSoftcap and kRmsNorm
  NormForm form = NormForm::kRoundFirst;  // used by kRmsNorm
  friend bool operator==(const RowValue&, const RowValue&) = default;
};

// Writes a value to an operand. If `slots` is not -1, it is the index of an int32 value with one element for each row
// of the kernel. The element for a row of the kernel is the number of the operand's row to which the kernel writes this
// row. If the operand has no row with this number, the kernel's row is dropped.
struct RowStore {
  int value = -1;
  int operand = -1;
  int slots = -1;
  // The operand's dtype. The value, which was already rounded to RowValue::dtype, is rounded again to this dtype.
  ir::DType dtype = ir::DType::kFloat32;
  friend bool operator==(const RowStore&, const RowStore&) = default;
};

struct RowKernel {
  ir::Dim rows = {};
  int num_operands = 0;  // number of the instruction's operands and results; the operands come first
  std::vector<RowValue> values = {};
  std::vector<RowStore> stores = {};
  friend bool operator==(const RowKernel&, const RowKernel&) = default;
};

std::string to_text(const RowKernel& kernel);

// A group of values that one thread block can compute together. An operator's result and its input are in one group if
// the operator reads the input at the same positions at which it writes the result.
struct RowTask {
  std::int64_t width = 0;
  std::int64_t segment = 0;      // number of elements that are reduced together; 0: nothing is reduced
  std::int64_t head_dim = 0;     // head_dim of a rotation; 0: nothing is rotated
  std::vector<int> values = {};  // ascending indices, including values of other tasks that are read through slices
  std::vector<int> stores = {};  // indices into RowKernel::stores
};

inline constexpr int kMaxRowOperands = 24;
inline constexpr std::size_t kMaxRowValues = 64;

// Returns the tasks of a kernel, in the order of their first stores. Returns kUnimplemented, with the reason, if no
// device has code for the kernel. The unsupported cases are tasks that reduce sequences of different lengths, tasks
// that rotate heads of different lengths, tasks whose sequences are not whole heads, slices of a value that was reduced
// or rotated, and kernels with too many operands or values.
Result<std::vector<RowTask>> row_tasks(const RowKernel& kernel);

}  // namespace tessera
