// The format in which a checkpoint stores the matrix of one linear.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The matrix is [rows, cols]: outputs and inputs of the linear. Element (r, c) is (value − zero) · scale; NVFP4 has a
// second scale of the whole tensor, and MXFP4's scales are powers of two.
struct WeightFormat {
  enum class Values : std::uint8_t { kPlain, kE4M3, kInt8, kInt4, kE2M1, kBlocks };
  // The tensors of the linear, by what follows "<module>.". Words and bytes hold values from the lowest bits upwards.
  enum class Spelling : std::uint8_t {
    // "weight" [rows, cols] of F8_E4M3 or I8, and the tensor of scales that `scale` names: [row blocks, column blocks],
    // [rows, 1], [rows], [1] or []. ModelOpt writes [row blocks, 1, column blocks, 1].
    kScaled,
    // compressed-tensors: "weight_packed" I32 [rows, cols / 8] of value + 8, "weight_scale" [rows, groups],
    // "weight_shape" I64 [2]; with zeros "weight_zero_point" I32 [rows / 8, groups]; if ordered "weight_g_idx" I32
    // [cols].
    kPacked,
    // "qweight" I32 [cols / 8, rows], "scales" [groups, rows], "qzeros" I32 [groups, rows / 8], "g_idx" I32 [cols].
    kGptq,
    // "qweight" I32 [cols, rows / 8] with the values of a word in the order 0 2 4 6 1 3 5 7, "scales" [groups, rows],
    // "qzeros" I32 [groups, rows / 8] in the same order.
    kAwq,
    // compressed-tensors: "weight_packed" U8 [rows, cols / 2], "weight_scale" F8_E4M3 [rows, cols / 16],
    // "weight_global_scale" F32 [1], a divisor.
    kNvfp4Packed,
    // ModelOpt: "weight" U8 [rows, cols / 2], "weight_scale" F8_E4M3 [rows, cols / 16], "weight_scale_2" F32 [], a
    // factor.
    kNvfp4,
    // MXFP4 of compressed-tensors: "weight_packed" U8 [rows, cols / 2], "weight_scale" U8 [rows, cols / 32] of
    // exponents. A scale is 2^(exponent − 127).
    kMxfp4Packed,
    // MXFP4 of Quark: "weight" U8 [rows, cols / 2], "weight_scale" U8 [rows, cols / 32] as above.
    kMxfp4,
    // "weight" [rows, cols] of F32, F16 or BF16, which is quantised while it is read; nothing else is stored.
    kNumbers,
    // A GGUF file's blocks, which hold their scales: "weight" [rows, cols].
    kBlocks,
  };
  // The rounding of inputs with which the linear was published. A computation without it is closer to the original.
  enum class Inputs : std::uint8_t {
    kPlain,   // none, or to 4 bits, which this engine does not do
    kTensor,  // by the stored "input_scale"
    kToken,   // one scale for each token
    kGroup,   // one scale for each token and 128 values
    kBlock,   // one scale for each token and 32 values, which GGUF's kernels make
  };

  Values values = Values::kPlain;
  Spelling spelling = Spelling::kScaled;
  std::string scale = {};       // kScaled: "weight_scale" or "weight_scale_inv"; both are factors
  std::int64_t block_rows = 0;  // rows that share a scale; 0: all
  std::int64_t block_cols = 0;  // columns that share a scale; 0: all
  bool zeros = false;           // zero points are stored; GPTQ stores them always
  bool zeros_less_one = false;  // GPTQ's first form stores zero − 1
  bool ordered = false;         // columns belong to groups by "g_idx" or "weight_g_idx"
  Inputs inputs = Inputs::kPlain;
  BlockType blocks = BlockType::kQ8_0;  // the type of kBlocks
  bool codes = false;                   // kBlocks: operators take integers and scales apart (block_codes.h)

  bool is_plain() const { return values == Values::kPlain; }
  bool is_blocks() const { return values == Values::kBlocks; }
  bool is_mxfp4() const { return spelling == Spelling::kMxfp4Packed || spelling == Spelling::kMxfp4; }
  bool is_nvfp4() const { return values == Values::kE2M1 && !is_mxfp4(); }
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Returns "FP8 e4m3, blocks of 128 × 128", "int4, groups of 32, zero points", …; for people.
std::string describe(const WeightFormat& format);

}  // namespace tessera
