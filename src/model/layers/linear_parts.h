// The matrix of a linear as a rank holds it: which part of which stored matrix, and in which format it is stored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"
#include "tessera/model/formats/weight_format.h"
#include "tessera/model/weights/weight_spec.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {

// A rank's part of one block of a linear. It has either all columns of some rows, or some columns of all rows.
struct LinearPart {
  std::string tensor;       // without ".weight" or ".bias"
  std::string matrix = {};  // the tensor that holds the plain matrix; empty: `tensor` with ".weight"
  std::int64_t tensor_rows = 0;
  std::int64_t tensor_cols = 0;
  TensorSlice slice = {};  // a slice of dimension 0 or 1
  TensorSlice bias_slice = {};
  std::int64_t rows = 0;  // rows in the rank's matrix, with the zero rows behind them
  std::int64_t cols = 0;
  bool padded = false;
  Storage storage = {};  // layout of a matrix of numbers: plain, transposed or strided
  WeightFormat format = {};
};

// Returns the attribute "inputs" of quantised_linear and moe_experts. Its kernels take no scale of inputs from a
// checkpoint: if there is one for all rows, rounding each row by its own scale is closer to the original.
std::string_view rounding_of_inputs(const WeightFormat& format);

// Returns the number of rows of the parts together, and the name of the tensor that holds a part's plain matrix.
std::int64_t sum_of_rows(std::span<const LinearPart> parts);
std::string matrix_tensor(const LinearPart& part);

// Returns the matrix [all parts' rows, cols] of plain parts, and the bias [all parts' rows].
WeightSpec plain_weight(const std::string& name, std::span<const LinearPart> parts, ir::DType dtype);
WeightSpec bias_weight(const std::string& name, std::span<const LinearPart> parts, ir::DType dtype);

// The operands of quantised_linear from w to groups.
struct QuantisedWeights {
  QuantisedFormat format;
  std::vector<WeightSpec> weights;
};

// Joins parts of one format, each with the scales of its own tensor. Precondition: the parts' formats are equal, not
// plain, and, if they are ordered, of one tensor. invalid_argument if a slice divides what is stored together: the two
// values of a byte, the 16 values of an NVFP4 scale, or a GGUF file's block; unimplemented for padded parts. With
// kWhole the blocks of scales divide every part's rows, as in a stack of experts; with kCut the last part may end
// within a block.
enum class LastBlock : std::uint8_t { kCut, kWhole };
Result<QuantisedWeights> quantised_weights(const std::string& name, std::span<const LinearPart> parts,
                                           LastBlock last = LastBlock::kCut);

// Returns the end of the first run of parts that can be one matrix. They have one format; if it orders the columns,
// they also belong to one tensor; if it is GGUF's packed blocks, all but the last have a multiple of sixteen rows.
std::size_t end_of_run(std::span<const LinearPart> parts);

}  // namespace tessera
