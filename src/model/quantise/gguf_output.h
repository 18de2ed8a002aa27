// Plans and writes a GGUF file with quantised tensors.
#pragma once

#include <memory>

#include "tessera/model/quantise/file_types.h"
#include "tessera/model/quantise/gguf_content.h"
#include "tessera/model/quantise/quantised_output.h"

namespace tessera {

// Returns the plan of the file. Chooses the tensors' types and adds the file type to the metadata.
std::unique_ptr<QuantisedOutput> make_gguf_output(GgufContent content, const GgufFileType& type);

}  // namespace tessera
