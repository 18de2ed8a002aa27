// Plans and writes a GGUF file with quantised tensors.
#pragma once

#include <memory>

#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/quantise/file_types.h"
#include "tessera/model/quantise/gguf_content.h"
#include "tessera/model/quantise/quantised_output.h"

namespace tessera {

// Returns the plan of the file. Chooses the tensors' types and adds the file type to the metadata. If `importance` is
// null, there is no importance matrix. Otherwise the metadata say which matrix and texts were used, as in files of
// llama-quantize. Returns the errors of choose_importance(). The matrix need not outlive the call.
Result<std::unique_ptr<QuantisedOutput>> make_gguf_output(GgufContent content, const GgufFileType& type,
                                                          const ImportanceMatrix* importance = nullptr);

}  // namespace tessera
