// Describes how the weights of a graph are made from a checkpoint. Three things are separate: the dtype of the value in
// the graph, the dtypes that the checkpoint stores, and the layout in which it stores them.
//
//   value     WeightSpec::type, the type a kernel reads
//   dtype     any dtype of the file that the layout accepts; converted while it is read
//   layout    WeightPart::storage: how elements of the part follow from one or several stored tensors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tessera/ir/type.h"
#include "tessera/model/weights/quantise_values.h"
#include "tessera/model/weights/stored_dtype.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The tensor is the part itself: F32, F16 or BF16, row-major.
struct PlainStorage {};

// A matrix [rows, cols], stored as its transpose [cols, rows] (GPT-2's Conv1D): F32, F16 or BF16.
struct TransposedStorage {};

// A matrix [rows, cols] of F8_E4M3, F8_E5M2 or I8 with a tensor of scales, F32, F16 or BF16: element (r, c) is
// stored[r, c] · scale[r / block_rows, c / block_cols]. The scales are row-major, ⌈rows / block_rows⌉ by ⌈cols /
// block_cols⌉ of them, in any shape. Blocks as large as the matrix mean one scale; blocks of one row mean one scale per
// channel.
struct ScaledStorage {
  std::string scale;  // the tensor of scales
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

// A matrix [rows, cols], or a vector as a matrix of one row, inside a tensor of shape `tensor_shape` of F32, F16 or
// BF16: element (r, c) is stored[offset + r · row_stride + c · col_stride], counted in elements of the whole tensor. It
// describes one matrix of a stack, also transposed or with its rows among those of another one.
struct StridedStorage {
  std::vector<std::int64_t> tensor_shape;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
};

// A matrix [rows, cols] of bytes, or a vector as a matrix of one row, inside a tensor of shape `tensor_shape` whose
// elements are bytes. A kernel reads it as it is: byte (r, c) is stored[offset + r · row_stride + c].
struct PackedStorage {
  enum class Content : std::uint8_t {
    kFourBits,   // two parameters a byte
    kExponents,  // exponents of the scale factors of such parameters: 2^(byte - 127); 255 is none
    kBytes,      // a parameter each
    kScales,     // scale factors of parameters as F8_E4M3: above 0
  };
  std::vector<std::int64_t> tensor_shape;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  Content content = Content::kFourBits;
  StoredDtype dtype = StoredDtype::kU8;  // U8, I8 or F8_E4M3; exponents are U8 or F8_E8M0
};

// 4-bit values from a tensor of I32, whose words hold eight of them along one dimension, the first in the lowest bits.
// The part is a matrix of bytes: [rows, cols / 2] with two values each, the first in the lower half, or, if `pairs` is
// false, [rows, cols] with one. Value (r, c) of the whole tensor is stored[r, c'] + add, or stored[c', r] + add if it
// is transposed, with c' = c · step / block.
struct NibbleStorage {
  std::int64_t rows = 0;  // rows of the whole tensor's values, untransposed
  std::int64_t cols = 0;
  bool transposed = false;
  std::int64_t packed_dim = 1;  // dimension of the tensor along which words hold eight values
  bool interleaved = false;     // the values of a word are in the order 0, 2, 4, 6, 1, 3, 5, 7 (AWQ)
  bool pairs = true;
  std::int64_t add = 0;
  std::int64_t block = 1;  // columns that share a stored value; the part has one for each `step` columns
  std::int64_t step = 1;
  std::string shape = {};  // a tensor I64[2] that must say [rows, cols]; empty: there is none
};

// Scales of a matrix [rows, cols], one for each block of step_rows by step_cols elements, from a tensor with one for
// each block of block_rows by block_cols: element (i, j) is stored[i · step_rows / block_rows, j · step_cols /
// block_cols], or its reciprocal. The tensor is F32, F16 or BF16, or has exponents e of scales 2^(e - 127), U8 or
// F8_E8M0. It is row-major or transposed, in any shape with that many elements. The part is [⌈rows / step_rows⌉, ⌈cols
// / step_cols⌉], or the first of these alone. Every scale is above 0.
struct GridStorage {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
  std::int64_t step_rows = 1;
  std::int64_t step_cols = 1;
  bool transposed = false;
  bool reciprocal = false;
  bool exponents = false;
  float dummy = 1;  // every scale of a random model
};

// A part of a matrix [rows, cols] of numbers that is quantised while it is read: its values, its scales or its factor.
// The numbers lie in a tensor as StridedStorage says, F32, F16 or BF16, and must be finite. A part of values is [rows,
// bytes of a row]. A part of scales has one for each block of step_rows by step_cols elements, which lies within a
// block of the rounding: float32, or E4M3 under a factor. A part of factors is [rows].
struct RoundedStorage {
  enum class Content : std::uint8_t { kValues, kScales, kFactor };
  StridedStorage numbers = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Rounding rounding = {};
  Content content = Content::kValues;
  std::int64_t step_rows = 1;
  std::int64_t step_cols = 1;
  float dummy = 1;  // every scale of a random model, or its factor if it has one
};

// A matrix [rows, cols] of a GGUF file's blocks, and what of it the part is: a slice of rows, or of whole blocks of all
// rows. Blocks are bytes [rows, bytes of a row of blocks], which packed_layout.h orders. Sixteen neighbouring rows of a
// part are interleaved, so that only a weight's last part has a number of rows that is no multiple of sixteen. Codes
// are bytes [rows, bytes of a row of codes], and scales float16 [rows, groups of a row], or twice as many if the format
// has pairs (block_codes.h).
struct BlockStorage {
  enum class Content : std::uint8_t { kBlocks, kCodes, kScales };
  BlockType type = BlockType::kQ8_0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Content content = Content::kBlocks;

  // Returns the elements of the part for each block.
  std::int64_t per_block() const;
};

// Indices, I32: each is at least 0 and below `limit`.
struct IndexStorage {
  std::int64_t limit = 0;
};

using Storage = std::variant<PlainStorage, TransposedStorage, ScaledStorage, StridedStorage, PackedStorage,
                             NibbleStorage, GridStorage, RoundedStorage, BlockStorage, IndexStorage>;

// A matrix or vector of the checkpoint, or this rank's slice of it. Shape and slice count the part's elements, whatever
// the layout of the tensors from which they are read.
struct WeightPart {
  std::string tensor;               // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // shape of the whole part
  TensorSlice slice = {};
  Storage storage = {};
  // [rows, cols] or [elements] that the part takes in the weight, if that is more than the slice: zeros follow the
  // slice's rows and columns (padded_part.h). Empty: no padding.
  std::vector<std::int64_t> padded = {};
  // Tensors that belong to this one and hold nothing that the weight needs.
  std::vector<std::string> beside = {};
};

// A weight of the graph: parts one below the other (q, k and v are one matrix here), or constants that the config
// determines.
struct WeightSpec {
  enum class Init : std::uint8_t { kUniform, kOnes };

  std::string name;    // name in the graph
  ir::Type type = {};  // with the constant shape that it has on this rank
  std::vector<WeightPart> parts = {};
  // Parts of the same weight on other ranks: tensors that the model has and this rank does not read.
  std::vector<WeightPart> elsewhere = {};
  std::vector<float> constant = {};  // used without parts: one value for each element, converted to the type
  Init dummy_init = Init::kUniform;  // content of random weights (load format "dummy"): norms get ones
};

// Returns the shape of the tensor from which the part is read.
std::vector<std::int64_t> stored_shape(const WeightPart& part);

// Returns the number of parameters in the tensors from which the weights are made. Each tensor counts once and whole,
// whichever rank's slices the weights are. It counts elements, or the parameters that PackedStorage has in them.
std::int64_t parameter_count(std::span<const WeightSpec> specs);

}  // namespace tessera
