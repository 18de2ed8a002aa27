// The text files of a model's folder: generation defaults, tokenizer, chat template. Large tokenizers take a few
// hundred milliseconds, so an engine reads them on another thread while it opens its device.
#pragma once

#include <future>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/weight_load.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {

struct ModelTexts {
  GenerationConfig generation;
  std::optional<Tokenizer> tokenizer;  // none: requests must give ids
  TokenizerConfig tokenizer_config;
};

struct ReadTexts {
  ModelTexts texts;
  LoadTimes times;
};

// Reads the texts on another thread. A tokenizer that the options name must exist. The tokenizer in the model's folder
// may be missing. `options` must outlive the future, whose destructor waits for the thread.
std::future<Result<ReadTexts>> start_reading_texts(const EngineOptions& options);

// Reads only the tokenizer at `tokenizer_path`. If `tokenizer_path` is empty, reads the tokenizer in the model's folder
// or GGUF file, which may be missing.
Result<std::optional<Tokenizer>> read_model_tokenizer(const std::string& model_path, const std::string& tokenizer_path,
                                                      const GgufOptions& gguf_options = {});

// Returns invalid_argument if an id that ends a text is not in [0, vocab_size). The message names the file in
// `model_path` that has this id.
Status check_end_ids(const std::string& model_path, std::span<const TokenId> end_ids, std::int64_t vocab_size);
// Returns a warning that lists what a model without a tokenizer cannot do.
std::string without_tokenizer(const std::string& model_path);

}  // namespace tessera
