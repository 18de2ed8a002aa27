// Compares the tokenizers of a model and of its draft model.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"

namespace tessera {

// Checks that the tokenizer in `draft_folder` gives the same ids as the model's tokenizer, because drafts are passed as
// ids. An id that has a token in only one of the two tokenizers is accepted. `model_size` and `draft_size` are the
// numbers of rows of the two models' embeddings, padding included. If a tokenizer is missing, only equal sizes are
// accepted. Returns invalid_argument if the vocabularies differ, and errors of Tokenizer::load() for a broken file.
//
// If the two tokenizer files are equal, the check takes as long as reading them. Otherwise the check takes about 0.2 s
// for each file.
Status check_draft_vocabulary(const EngineOptions& options, const std::string& draft_folder, std::int64_t model_size,
                              std::int64_t draft_size);

}  // namespace tessera
