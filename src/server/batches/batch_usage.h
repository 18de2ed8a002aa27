// The tokens that a batch's answers used.
#pragma once

#include <cstdint>

#include "tessera/base/json.h"

namespace tessera {

struct BatchUsage {
  std::int64_t input_tokens = 0;
  std::int64_t cached_tokens = 0;  // input tokens from the prefix cache
  std::int64_t output_tokens = 0;
  std::int64_t reasoning_tokens = 0;  // output tokens of reasoning

  // Adds the usage in one line of an output file. The names are those of completions (prompt_tokens, …) or of responses
  // (input_tokens, …). An answer without usage adds nothing.
  void add(const Json& answer);
  // Returns OpenAI's usage object of a batch.
  Json to_json() const;
  // Reads what to_json() made; members that are missing count as 0.
  static BatchUsage read(const Json& json);
};

}  // namespace tessera
