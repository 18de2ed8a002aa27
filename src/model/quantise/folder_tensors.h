// The tensors of a checkpoint by GGUF's names and in the order of rows that files have: the inverse of
// gguf/gguf_tensors.h.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/quantise/gguf_content.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// Adds all tensors to `content`, and notes about those that are left out: next-token layers, which files of most
// architectures do not have, and a stored head that is the embeddings. Borrows the checkpoint's data. unimplemented for
// a tensor that has no place in a file of the architecture, and a format that quantised_source.h does not read;
// data_loss for a missing expert. Precondition: content.architecture is one of gguf_architectures.h.
Status add_folder_tensors(const Checkpoint& checkpoint, const ModelConfig& config, GgufContent& content);

}  // namespace tessera
