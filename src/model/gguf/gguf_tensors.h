// The tensors of GGUF files as the checkpoint of a model family.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// Returns the tensors by Hugging Face's names, in Hugging Face's arrangement. A tensor of F32, F16 or BF16 that lies in
// the file as it should is a view; others are made while they are read, as F32. Tensors without a name of that kind
// keep their own. data_loss for tensors whose shapes do not fit the metadata, or that lack the tensor that belongs to
// them; unimplemented for a type whose numbers cannot be read.
Result<TensorFile> read_gguf_tensors(const GgufModel& model);

}  // namespace tessera
