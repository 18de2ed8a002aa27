// How the weights of a graph are made from a checkpoint. Three things are separate: the dtype of the value in the
// graph, the dtypes that the checkpoint stores, and the layout in which it stores them.
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
#include "tessera/model/weights/tensor_copy.h"

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

// A matrix [rows, cols] of bytes, or a vector as a matrix of one row, inside a tensor of shape `tensor_shape` of U8. A
// kernel reads it as it is: byte (r, c) is stored[offset + r · row_stride + c].
struct PackedStorage {
  enum class Content : std::uint8_t {
    kFourBits,   // two parameters a byte
    kExponents,  // exponents of the scale factors of such parameters: 2^(byte - 127)
  };
  std::vector<std::int64_t> tensor_shape;
  std::int64_t offset = 0;
  std::int64_t row_stride = 0;
  Content content = Content::kFourBits;
};

using Storage = std::variant<PlainStorage, TransposedStorage, ScaledStorage, StridedStorage, PackedStorage>;

// A matrix or vector of the checkpoint, or this rank's slice of it. Shape and slice count the part's elements, whatever
// the layout of the tensors from which they are read.
struct WeightPart {
  std::string tensor;               // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // of the whole part
  TensorSlice slice = {};
  Storage storage = {};
  // [rows, cols] or [elements] that the part takes in the weight, if that is more than the slice: zeros follow the
  // slice's rows and columns (padded_part.h). Empty: no padding.
  std::vector<std::int64_t> padded = {};
};

// A weight of the graph: parts one below the other (q, k and v are one matrix here), or constants that the config
// determines.
struct WeightSpec {
  enum class Init : std::uint8_t { kUniform, kOnes };

  std::string name;    // name in the graph
  ir::Type type = {};  // constant shape, that of this rank
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
