// Describes the matrix of a linear on one rank: the parts of stored matrices that form it, and the formats of these
// parts.
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

// A rank's part of one block of a linear: either all columns of some rows, or some columns of all rows.
struct LinearPart {
  std::string tensor;       // name without ".weight" or ".bias"
  std::string matrix = {};  // tensor of the unquantised matrix; if empty, `tensor` with ".weight"
  std::int64_t tensor_rows = 0;
  std::int64_t tensor_cols = 0;
  TensorSlice slice = {};  // a slice of dimension 0 or 1
  TensorSlice bias_slice = {};
  std::int64_t rows = 0;  // rows in the rank's matrix, including zero rows at the end
  std::int64_t cols = 0;
  bool padded = false;
  Storage storage = {};  // layout of an unquantised matrix: plain, transposed or strided
  WeightFormat format = {};
};

// Returns the attribute "inputs" of quantised_linear and moe_experts. The kernels ignore a stored scale of the inputs,
// which is one scale for all rows. They give each row its own scale, so that the results are closer to those of the
// unquantised model.
std::string_view rounding_of_inputs(const WeightFormat& format);

// sum_of_rows() returns the total number of rows of all parts. matrix_tensor() returns the name of the tensor with a
// part's unquantised matrix.
std::int64_t sum_of_rows(std::span<const LinearPart> parts);
std::string matrix_tensor(const LinearPart& part);

// unquantised_weight() returns the matrix [all parts' rows, cols] of unquantised parts. bias_weight() returns the bias
// [all parts' rows].
WeightSpec unquantised_weight(const std::string& name, std::span<const LinearPart> parts, ir::DType dtype);
WeightSpec bias_weight(const std::string& name, std::span<const LinearPart> parts, ir::DType dtype);

// The weights of the operator quantised_linear, and their format. The weights are in the order of the operator's
// operands, from `w` to `groups`.
struct QuantisedWeights {
  QuantisedFormat format;
  std::vector<WeightSpec> weights;
};

// quantised_weights() joins parts with equal formats. Each part keeps the scales of its own tensor. Preconditions: The
// format is quantised. If it permutes columns, all parts belong to one tensor. Returns invalid_argument if a slice
// begins or ends within values that are stored together: the two values of a byte, the 16 values of an NVFP4 scale, or
// a GGUF file's block (with WeightFormat::codes, a group of the block). Returns unimplemented for padded parts. The
// result has one table of scales for all parts, with one scale for each block of rows and columns. With LastBlock::kCut
// the last part may end within a block. With kWhole the blocks are so small that every part, including the last,
// consists of whole blocks. A stack of experts needs kWhole.
enum class LastBlock : std::uint8_t { kCut, kWhole };
Result<QuantisedWeights> quantised_weights(const std::string& name, std::span<const LinearPart> parts,
                                           LastBlock last = LastBlock::kCut);

// Returns the number of parts, counted from the first, that can form one matrix. These parts must have equal formats.
// If the format permutes columns, the parts must belong to one tensor. If operators take a GGUF file's blocks
// themselves, every part except the last must have a multiple of sixteen rows.
std::size_t end_of_run(std::span<const LinearPart> parts);

}  // namespace tessera
