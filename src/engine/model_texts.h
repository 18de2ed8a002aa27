// What a model's folder says of texts: generation defaults, tokenizer, chat template. Large tokenizers take some
// hundred milliseconds, so that an engine reads them on a thread of its own, beside the opening of its device.
#pragma once

#include <future>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/engine/engine_plan.h"
#include "tessera/engine/weight_load.h"
#include "tessera/model/generation_config.h"
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

// A tokenizer that options name has to be there, one beside the model may be missing.
Result<ReadTexts> read_model_texts(const EngineOptions& options);
// The same on another thread; `options` outlive it. The future's destructor waits for it.
std::future<Result<ReadTexts>> start_reading_texts(const EngineOptions& options);

}  // namespace tessera
