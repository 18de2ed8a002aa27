// The answer to /v1/chat/completions: one object with all choices, or chunks with what each step adds to a choice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/server/api_job.h"
#include "tessera/server/chat_text.h"
#include "tessera/server/usage.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

struct ChatStyle {
  std::string id;
  std::string model;
  StreamFields stream{};
  int n = 1;
  bool logprobs = false;
  bool graph_info = false;
  std::int64_t prompt_tokens = 0;
  ChatTextStyle text{};
  const Tokenizer* tokenizer = nullptr;  // borrowed
};

std::unique_ptr<Answer> make_chat_answer(ChatStyle style);

}  // namespace tessera
