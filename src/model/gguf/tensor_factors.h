// Finds the factors of a GGUF file's matrices. llama.cpp's converter writes NVFP4's second scale as a tensor of its
// own: "blk.0.attn_q.scale" has one number, by which all numbers of "blk.0.attn_q.weight" are multiplied. A stack of
// experts has one number for each expert.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/tensor_names.h"

namespace tessera {

class TensorFactors {
 public:
  // `rules` are those of the file's architecture. A tensor that one of them names is no factor. Returns data_loss, with
  // the tensor's name, for factors that are not F32, not finite, or neither one number nor one for each expert.
  static Result<TensorFactors> read(const GgufModel& model, std::span<const TensorNameRule> rules);

  // Returns the factors of the tensor with this name: none, one, or one for each matrix of a stack.
  std::span<const float> of(const std::string& tensor) const;
  // Returns whether the tensor of this name belongs to a matrix of the file. It does if it has the matrix's factors, or
  // the scale of the matrix's inputs ("blk.0.attn_q.input_scale"). The latter is not needed, because inputs are not
  // rounded to NVFP4.
  bool is_of_matrix(std::string_view name) const { return beside_.contains(name); }

 private:
  std::map<std::string, std::vector<float>> factors_;  // the key is the matrix's name
  std::set<std::string, std::less<>> beside_;          // names of tensors that belong to matrices
};

}  // namespace tessera
