// The answers to /api/chat and /api/generate: one object, or a stream with one object on each line. The last line has
// the reason for the end, the token counts, and times in nanoseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/server/api_job.h"
#include "tessera/server/openai/chat_text.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct OllamaStyle {
  std::string model;  // the name in the answer
  bool chat = true;   // true: texts are in "message"; false: in "response"
  bool stream = true;
  bool logprobs = false;
  bool is_load = false;       // the request only asked to load the model, so nothing is generated
  std::int64_t interval = 1;  // tokens between two lines
  ChatTextStyle text{};
  const Tokenizer* tokenizer = nullptr;  // borrowed
};

std::unique_ptr<Answer> make_ollama_answer(OllamaStyle style);

}  // namespace tessera
