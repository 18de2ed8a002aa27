// The answer to /generate: one object, or a list of objects for a batch or several choices. A stream sends the whole
// object at every step, with longer text and lists each time. SGLang does the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/server/api_job.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct GenerateChoiceStyle {
  std::string id;
  TokenId last_prompt_id{};
  std::int64_t prompt_tokens = 0;
  std::int64_t image_tokens = 0;  // the part of prompt_tokens that images take; written if not 0
  bool logprobs = false;
  bool input_logprobs = false;
  bool top_logprobs = false;
  bool hidden_states = false;
  bool graph_info = false;
};

struct GenerateStyle {
  std::vector<GenerateChoiceStyle> choices{};
  bool list = false;  // the body is a list, and a stream's objects have an "index"
  bool stream = false;
  std::int64_t stream_interval = 1;  // tokens between two events of a choice
  bool text_in_logprobs = false;
  const Tokenizer* tokenizer = nullptr;  // borrowed
  std::int64_t hidden_size = 0;
};

std::unique_ptr<Answer> make_generate_answer(GenerateStyle style);

}  // namespace tessera
