// The answer to /v1/messages: one message with its blocks, or a stream of Anthropic's events as the blocks grow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/server/api_job.h"
#include "tessera/server/openai/chat_text.h"

namespace tessera {

struct MessageStyle {
  std::string id;
  std::string model;  // the name in the request
  bool stream = false;
  std::int64_t interval = 1;  // tokens between two events of a stream
  std::int64_t prompt_tokens = 0;
  ChatTextStyle text{};
  bool shows_thinking = false;  // false: thinking is left out
  bool omits_thinking = false;  // blocks of thinking have no text; their signatures hold the thinking
  bool lists_edits = false;     // the request has context_management; the answer then says that nothing was edited
  // The context has room for fewer tokens than max_tokens. An answer that reaches this limit has the stop reason
  // model_context_window_exceeded, not max_tokens.
  bool ends_with_context = false;
};

std::unique_ptr<Answer> make_message_answer(MessageStyle style);

}  // namespace tessera
