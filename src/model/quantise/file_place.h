// Finds the GGUF tensor that corresponds to a matrix of a folder's checkpoint. The importances of the matrix are found
// by this tensor's name, because importance matrices use the names of GGUF tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_architectures.h"
#include "tessera/model/gguf/made_tensors.h"

namespace tessera {

struct FilePlace {
  std::string name;                   // "blk.3.ffn_up_exps.weight"
  std::optional<std::int64_t> layer;  // nothing for a matrix outside of the layers
  std::int64_t matrix = 0;            // index within the tensor, if it is a stack of experts
  TensorForm form = TensorForm::kSame;
};

// Returns where GGUF files store a tensor of the folder. Returns nothing if GGUF files of the architecture do not have
// this tensor. A quantised matrix's name may end in another word than "weight". The last word is therefore ignored.
std::optional<FilePlace> find_file_place(std::string_view tensor, const ModelConfig& config,
                                         const GgufArchitecture& architecture);

// Some columns of a gated delta net's matrices belong to value heads. Returns the order of the value heads in the
// columns of a GGUF file: the first value head of every key head, then the second value head of every key head, and so
// on.
StoredOrder value_head_order(const DeltaNetConfig& net);

}  // namespace tessera
