// What a model's folder says of texts: generation defaults, tokenizer, chat template. Large tokenizers take some
// hundred milliseconds, so that an engine reads them on a thread of its own, beside the opening of its device.
#pragma once

#include <future>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/engine/weight_load.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {

struct ModelTexts {
  GenerationConfig generation;
  std::optional<Tokenizer> tokenizer;  // none: requests give ids
  TokenizerConfig tokenizer_config;
};

struct ReadTexts {
  ModelTexts texts;
  LoadTimes times;
};

// Reads them on another thread. A tokenizer that options name has to be there, one beside the model may be missing.
// `options` outlive the future, whose destructor waits for the thread.
std::future<Result<ReadTexts>> start_reading_texts(const EngineOptions& options);

// invalid_argument where an id that ends a text is not in [0, vocab_size); names the file of `model_path` that says so.
Status check_end_ids(const std::string& model_path, std::span<const TokenId> end_ids, std::int64_t vocab_size);
// What a model without a tokenizer cannot do, for a warning.
std::string without_tokenizer(const std::string& model_path);

}  // namespace tessera
