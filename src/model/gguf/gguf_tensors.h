// Converts the tensors of GGUF files to the tensors of a Hugging Face checkpoint.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {

// Returns the tensors under Hugging Face's names and in Hugging Face's layout. An F32, F16 or BF16 tensor that needs no
// conversion is a view of the file. GPT-OSS's experts in MXFP4 become tensors of U8 values and U8 exponents. Linears in
// NVFP4 become the tensors of ModelOpt's checkpoints. All other tensors are converted to F32 while they are read.
// Rotation factors (rope_freqs.weight, …) are left out, because they belong to the config (gguf_rope.h). Each result
// names the file's tensor (StoredTensor::source). Returns unimplemented for a tensor that no rule of the architecture
// names. Returns data_loss if a tensor's shape does not fit the metadata, or if one of two tensors that belong together
// is missing. Returns unimplemented for a type that cannot be read.
Result<TensorFile> read_gguf_tensors(const GgufModel& model);

}  // namespace tessera
