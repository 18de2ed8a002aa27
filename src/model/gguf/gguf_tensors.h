// Converts the tensors of GGUF files to the tensors of a Hugging Face checkpoint.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// Returns the tensors under Hugging Face's names and in Hugging Face's layout. An F32, F16 or BF16 tensor that needs no
// conversion is a view of the file. GPT-OSS's experts in MXFP4 become tensors of U8 values and U8 exponents. All other
// tensors are converted to F32 while they are read. Rotation factors (rope_freqs.weight, …) are left out, because they
// belong to the config (gguf_rope.h). Other tensors that have no counterpart in Hugging Face's layout keep their names.
// Returns data_loss if a tensor's shape does not fit the metadata, or if one of two tensors that belong together is
// missing. Returns unimplemented for a type that cannot be read.
Result<TensorFile> read_gguf_tensors(const GgufModel& model);

}  // namespace tessera
