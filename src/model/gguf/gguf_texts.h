// What a GGUF file has beside config and weights: the tokenizer, chat templates, sampling defaults, and how an
// embedding model pools.
#pragma once

#include <optional>

#include "tessera/base/status.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {

// Returns the tokenizer's lists, which borrow from `model`. not_found if the file has no tokenizer; invalid_argument
// for values of wrong types.
Result<TokenLists> gguf_token_lists(const GgufModel& model);

// Returns what tokenizer_config.json would say: special tokens and chat templates.
Result<TokenizerConfig> gguf_tokenizer_config(const GgufModel& model);

// Returns what generation_config.json would say: the tokens that end an answer, and the authors' sampling defaults.
Result<GenerationConfig> gguf_generation_config(const GgufModel& model);

// Returns how the hidden states become an embedding, normalised; nothing for a language model. unimplemented for a
// model that ranks by a head of its own.
Result<std::optional<EmbeddingConfig>> gguf_embedding_config(const GgufModel& model);

}  // namespace tessera
