// Reads from a GGUF file the tokenizer, the chat templates, the sampling defaults, and how an embedding model pools.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/model/config/embedding_config.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/model/gguf/gguf_model.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {

// Returns the tokenizer's lists, which borrow from `model`. Returns not_found if the file has no tokenizer, and
// invalid_argument for values of wrong types.
Result<TokenLists> gguf_token_lists(const GgufModel& model);

// Returns the content that tokenizer_config.json would have: special tokens and chat templates.
Result<TokenizerConfig> gguf_tokenizer_config(const GgufModel& model);

// Returns the content that generation_config.json would have: the tokens that end an answer, and the sampling defaults.
Result<GenerationConfig> gguf_generation_config(const GgufModel& model);

// The pooling_type of rerankers, whose head scores texts.
inline constexpr std::int64_t kGgufRankPooling = 4;

// Returns how hidden states become a normalised embedding; nothing for a language model. Returns unimplemented for
// unsupported ways of pooling. One of these is kGgufRankPooling, so callers must check first whether the model is a
// classifier.
Result<std::optional<EmbeddingConfig>> gguf_embedding_config(const GgufModel& model);

}  // namespace tessera
