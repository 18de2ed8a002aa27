// Finds the GGUF tensor that contains a matrix of a folder's checkpoint. Importance matrices use the names of GGUF
// tensors.
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

// Returns the place of a tensor of the folder; nothing if GGUF files of the architecture do not have this tensor. The
// last word of a quantised matrix's name may differ from "weight". This word is ignored.
std::optional<FilePlace> find_file_place(std::string_view tensor, const ModelConfig& config,
                                         const GgufArchitecture& architecture);

// Returns the order in which a GGUF file stores the value heads of a gated delta net, as columns of a matrix: the first
// value head of every key head, then the second value head of every key head, and so on.
StoredOrder value_head_order(const DeltaNetConfig& net);

}  // namespace tessera
