// Describes how the weights of a graph are made from a checkpoint. A weight consists of parts, which are concatenated
// along the rows. A weight has three independent properties:
//
//   type      the dtype and shape that a kernel reads (WeightSpec::type)
//   dtype     the dtype in the checkpoint: any that the layout accepts. The elements are converted while they are read
//   layout    how a part's elements are computed from one or several stored tensors (WeightPart::storage)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tessera/ir/type.h"
#include "tessera/model/rounding/quantise_values.h"
#include "tessera/model/weights/stored_dtype.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// The stored tensor is the part itself, in row-major order, as F32, F16 or BF16.
struct PlainStorage {};

// A matrix [rows, cols] that is stored as its transpose [cols, rows] (GPT-2's Conv1D), as F32, F16 or BF16.
struct TransposedStorage {};

// A matrix [rows, cols] of F8_E4M3, F8_E5M2 or I8, and a tensor of scales of F32, F16 or BF16. Element (r, c) is
// stored[r, c] · scale[r / block_rows, c / block_cols]. There are ⌈rows / block_rows⌉ by ⌈cols / block_cols⌉ scales,
// row-major, in a tensor of any shape. If a block is as large as the matrix, there is a single scale. If a block is one
// row, each row has a scale.
struct ScaledStorage {
  std::string scale;  // the tensor of scales
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 1;
};

// A matrix [rows, cols] that is a part of a larger tensor of shape `tensor_shape`, as F32, F16 or BF16. A vector is a
// matrix with one row. Element (r, c) is stored[offset + r · row_stride + c · col_stride], where the index counts
// elements of the whole tensor. This can describe one matrix of a stacked tensor, a transposed matrix, or a matrix
// whose rows alternate with the rows of another matrix.
struct StridedStorage {
  std::vector<std::int64_t> tensor_shape;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
};

// A matrix [rows, cols] of bytes that is a part of a larger tensor of bytes. `tensor_shape` is the larger tensor's
// shape. A vector is a matrix with one row. Byte (r, c) is stored[offset + r · row_stride + c]. Bytes are not
// converted.
struct PackedStorage {
  enum class Content : std::uint8_t {
    kFourBits,   // two 4-bit parameters in each byte
    kExponents,  // exponents of scales: a scale is 2^(byte - 127); 255 is invalid
    kBytes,      // one parameter in each byte
    kScales,     // scales of parameters as F8_E4M3, all above 0
  };
  std::vector<std::int64_t> tensor_shape;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  Content content = Content::kFourBits;
  StoredDtype dtype = StoredDtype::kU8;  // U8, I8 or F8_E4M3; exponents are U8 or F8_E8M0
};

// A matrix of 4-bit values from a tensor of I32. Each word contains eight values along one dimension, the first in the
// lowest bits. The part is a matrix of bytes. If `pairs` is true, the part is [rows, cols / 2] and each byte has two
// values, the first in the lower half. Otherwise the part is [rows, ⌈cols / step⌉] and each byte has one value. Value
// (r, c) is stored[r, c'] + add or, if `transposed`, stored[c', r] + add, where c' = c · step / block.
struct NibbleStorage {
  std::int64_t rows = 0;  // rows of the whole matrix of values, not of the stored tensor
  std::int64_t cols = 0;
  bool transposed = false;
  std::int64_t packed_dim = 1;  // dimension of the tensor along which a word's eight values lie
  bool interleaved = false;     // the values in a word have the order 0, 2, 4, 6, 1, 3, 5, 7 (AWQ)
  bool pairs = true;
  std::int64_t add = 0;
  std::int64_t block = 1;  // columns that share a stored value; the part has a value for each `step` columns
  std::int64_t step = 1;
  std::string shape = {};  // name of a tensor I64[2] that must contain [rows, cols]; may be empty
};

// The scales of a matrix [rows, cols] for blocks of step_rows by step_cols elements. They are read from a tensor that
// has one scale for each larger block of block_rows by block_cols elements. Scale (i, j) of the part is stored[i ·
// step_rows / block_rows, j · step_cols / block_cols], or its reciprocal. The tensor contains scales as F32, F16 or
// BF16, or exponents e of scales 2^(e - 127) as U8 or F8_E8M0. The tensor is row-major or transposed, and may have any
// shape with as many elements as there are larger blocks. The part is [⌈rows / step_rows⌉, ⌈cols / step_cols⌉], or only
// [⌈rows / step_rows⌉]. Every scale must be above 0.
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
  float dummy = 1;  // value of every scale in a random model
};

// A matrix [rows, cols] of numbers that is quantised while it is read. The numbers are stored as in StridedStorage, as
// F32, F16 or BF16, and must be finite. `rounding` gives the format and the blocks in which the matrix is quantised.
// `content` says which result of the quantisation the part contains. The values are [rows, bytes of a row]. There is
// one scale for each block of step_rows by step_cols elements. This block must lie within one block of `rounding`. The
// factor is [rows], the same number for each row. Only formats whose scales are E4M3 have a factor, by which all scales
// are multiplied. In other formats the scales are float32.
struct RoundedStorage {
  enum class Content : std::uint8_t { kValues, kScales, kFactor };
  StridedStorage numbers = {};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Rounding rounding = {};
  Content content = Content::kValues;
  std::int64_t step_rows = 1;
  std::int64_t step_cols = 1;
  float dummy = 1;  // in a random model, the value of the factor or, without a factor, of every scale
};

// A matrix [rows, cols] that is stored as blocks of a GGUF file. A rank's slice of the part consists of whole rows, or
// of some columns of all rows. These columns must be whole blocks or, with kCodes and kScales, whole groups. With
// kBlocks the part is bytes [rows, bytes of a row of blocks] in the layout of packed_layout.h. This layout interleaves
// sixteen consecutive rows, so only the last part of a weight may have a number of rows that is not a multiple of
// sixteen. With kCodes the part is bytes [rows, bytes of a row of codes]. With kScales the part is float16 [rows,
// groups of a row], or has twice as many columns if the format has pairs of a scale and an offset (block_codes.h).
struct BlockStorage {
  enum class Content : std::uint8_t { kBlocks, kCodes, kScales };
  BlockType type = BlockType::kQ8_0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Content content = Content::kBlocks;

  // Returns how many elements of the part are made from one block.
  std::int64_t per_block() const;
};

// A tensor of indices as I32. Each index must be at least 0 and below `limit`.
struct IndexStorage {
  std::int64_t limit = 0;
};

using Storage = std::variant<PlainStorage, TransposedStorage, ScaledStorage, StridedStorage, PackedStorage,
                             NibbleStorage, GridStorage, RoundedStorage, BlockStorage, IndexStorage>;

// A matrix or vector of the checkpoint, or this rank's slice of it. `shape` and `slice` count elements of the part, not
// of the stored tensors.
struct WeightPart {
  std::string tensor;               // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // shape of the whole part
  TensorSlice slice = {};
  Storage storage = {};
  // The size [rows, cols] or [elements] of the part in the weight, if it is larger than the slice. Zero rows and
  // columns are appended (padded_part.h). Empty if the part is not padded.
  std::vector<std::int64_t> padded = {};
  // Names of tensors that belong to `tensor` but that the weight does not need. unread_tensors() counts them as read.
  std::vector<std::string> beside = {};
};

// A weight of the graph. It consists of parts that are concatenated along the rows, as q, k and v are, or of constants
// that are computed from the config.
struct WeightSpec {
  enum class Init : std::uint8_t { kUniform, kOnes };

  std::string name;    // name in the graph
  ir::Type type = {};  // its shape is the constant shape of the weight on this rank
  std::vector<WeightPart> parts = {};
  // Parts of the same weight on other ranks. This rank does not read their tensors, but unread_tensors() and
  // parameter_count() count them.
  std::vector<WeightPart> elsewhere = {};
  std::vector<float> constant = {};  // used if there are no parts: a value for each element, converted to the type
  Init dummy_init = Init::kUniform;  // how random weights are filled (load format "dummy")
};

// Returns the shape of the stored tensor from which the part is read.
std::vector<std::int64_t> stored_shape(const WeightPart& part);

// Returns the number of parameters in the tensors from which the weights are made. Each tensor is counted once and
// completely, even if the weights are slices of it. An element counts as one parameter, with two exceptions: an element
// of a packed tensor may contain several parameters, and an element of a tensor of scales, zero points or indices
// contains none.
std::int64_t parameter_count(std::span<const WeightSpec> specs);

}  // namespace tessera
