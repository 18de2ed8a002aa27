// Converts a checkpoint's tensors to GGUF's names and order of rows. gguf/gguf_tensors.h does the inverse.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/quantise/gguf_content.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// Adds the checkpoint's tensors to `content`. Also adds notes about tensors that are left out. Next-token layers are
// left out if GGUF files of the architecture do not have them. A stored LM head is left out if the config says that the
// embedding matrix is also the LM head. Borrows the checkpoint's data. Returns unimplemented for a tensor that GGUF
// files of the architecture cannot contain, and for a format that quantised_source.h does not support. Returns
// data_loss for a missing expert. Precondition: content.architecture is one of gguf_architectures.h.
Status add_folder_tensors(const Checkpoint& checkpoint, const ModelConfig& config, GgufContent& content);

}  // namespace tessera
