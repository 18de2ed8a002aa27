// Describes the format in which a checkpoint stores the matrix of one linear.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The matrix is [rows, cols]: a row for each output of the linear, a column for each input. Element (r, c) is (value −
// zero) · scale. NVFP4 has a second scale for the whole tensor. MXFP4's scales are powers of two.
struct WeightFormat {
  enum class Values : std::uint8_t { kUnquantised, kE4M3, kInt8, kInt4, kE2M1, kBlocks };
  // The names and types of the linear's tensors. In the checkpoint a name is preceded by "<module>.". Values are packed
  // into words and bytes from the lowest bits upwards.
  enum class Spelling : std::uint8_t {
    // "weight" [rows, cols] of F8_E4M3 or I8, and the tensor of scales that `scale` names: [row blocks, column blocks],
    // [rows, 1], [rows], [1] or []. ModelOpt writes [row blocks, 1, column blocks, 1].
    kScaled,
    // compressed-tensors: "weight_packed" I32 [rows, cols / 8], which stores value + 8; "weight_scale" [rows, groups];
    // "weight_shape" I64 [2]. If `zeros`, also "weight_zero_point" I32 [rows / 8, groups]. If `ordered`, also
    // "weight_g_idx" I32 [cols].
    kPacked,
    // "qweight" I32 [cols / 8, rows], "scales" [groups, rows], "qzeros" I32 [groups, rows / 8], "g_idx" I32 [cols].
    kGptq,
    // "qweight" I32 [cols, rows / 8] with the values of a word in the order 0 2 4 6 1 3 5 7, "scales" [groups, rows],
    // "qzeros" I32 [groups, rows / 8] with zero points in the same order.
    kAwq,
    // compressed-tensors: "weight_packed" U8 [rows, cols / 2], "weight_scale" F8_E4M3 [rows, cols / 16],
    // "weight_global_scale" F32 [1], by which the scales are divided.
    kNvfp4Packed,
    // ModelOpt: "weight" U8 [rows, cols / 2], "weight_scale" F8_E4M3 [rows, cols / 16], "weight_scale_2" F32 [], by
    // which the scales are multiplied.
    kNvfp4,
    // MXFP4 of compressed-tensors: "weight_packed" U8 [rows, cols / 2]; "weight_scale" U8 [rows, cols / 32], which
    // stores exponents. A scale is 2^(exponent − 127).
    kMxfp4Packed,
    // MXFP4 of Quark: "weight" U8 [rows, cols / 2], "weight_scale" U8 [rows, cols / 32] as in kMxfp4Packed.
    kMxfp4,
    // "weight" [rows, cols] of F32, F16 or BF16. There are no other tensors. The matrix is quantised while it is read.
    kNumbers,
    // "weight" [rows, cols], stored as blocks of a GGUF file. A block contains its values and scales.
    kBlocks,
  };
  // How the linear's inputs are rounded according to the checkpoint's authors. Without this rounding the results are
  // closer to those of the unquantised model.
  enum class Inputs : std::uint8_t {
    kPlain,   // not rounded; also used for rounding to 4 bits, which this engine does not do
    kTensor,  // one scale for all tokens, which is stored as "input_scale"
    kToken,   // one scale for each token
    kGroup,   // one scale for each 128 values of a token
    kBlock,   // one scale for each 32 values of a token, computed by the kernels for GGUF
  };

  Values values = Values::kUnquantised;
  Spelling spelling = Spelling::kScaled;
  // Only for kScaled: "weight_scale" or "weight_scale_inv". Values are multiplied by the scale in both cases.
  std::string scale = {};
  std::int64_t block_rows = 0;  // number of rows of a block with one scale; 0 for all rows
  std::int64_t block_cols = 0;  // number of columns of a block with one scale; 0 for all columns
  bool zeros = false;           // zero points are stored; always true for GPTQ
  bool zeros_less_one = false;  // the stored zero points are zero − 1, as in the first version of GPTQ
  bool ordered = false;         // "g_idx" or "weight_g_idx" gives the group of each column
  Inputs inputs = Inputs::kPlain;
  BlockType blocks = BlockType::kQ8_0;  // only for kBlocks: the type of the blocks
  // Only for kBlocks: true if operators take the blocks' integers and scales as separate tensors (block_codes.h).
  bool codes = false;

  bool is_unquantised() const { return values == Values::kUnquantised; }
  bool is_blocks() const { return values == Values::kBlocks; }
  bool is_mxfp4() const { return spelling == Spelling::kMxfp4Packed || spelling == Spelling::kMxfp4; }
  bool is_nvfp4() const { return values == Values::kE2M1 && !is_mxfp4(); }
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Returns a description for people: "FP8 e4m3, blocks of 128 × 128", "int4, groups of 32, zero points", …
std::string describe(const WeightFormat& format);

}  // namespace tessera
