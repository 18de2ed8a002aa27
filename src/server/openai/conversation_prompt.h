// Makes the prompt of a conversation: a chat template renders its messages, and images get their tokens. All protocols
// with conversations use this code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/server/openai/chat_messages.h"
#include "tessera/server/served_model.h"
#include "tessera/server/tools/chat_tools.h"

namespace tessera {

struct ChatPrompt {
  std::string text{};          // the rendered text, or the decoded input ids; "" if neither is available
  std::vector<TokenId> ids{};  // all ids of the prompt, not yet checked against the context's length
  std::vector<PromptImage> images{};
  std::vector<std::int64_t> branch_tokens{};  // Request::branch_tokens; empty for a model without recurrent states
  // The text of the last message if the model continues this message (continue_final_message); otherwise "".
  std::string begun{};
  std::string echo{};  // text at the beginning of the answer, if "echo" asks for it
};

struct Conversation {
  ChatMessages messages{};
  ToolFields tools{};
  const ChatTemplate* chat = nullptr;  // borrowed
  bool own_template = false;           // the request brought `chat`
  Json variables = Json::object();     // further variables of the template
  bool generation_prompt = true;       // the prompt ends where the assistant's turn begins
  bool continues = false;              // the model continues the last message, which must be the assistant's text
  bool add_special_tokens = false;
};

// Returns the model's template for a conversation with these tools; null if the model has none.
const ChatTemplate* template_of(const ServedModel& model, const Json& tools);
// Returns the 400 for a conversation with a model that has no template.
ApiError no_template(const ServedModel& model);

MessageKinds kinds_of(const ServedModel& model);

// Returns an error if a text in one of the members `keys` contains the image placeholder. Only the template may place
// images, because a client may pass on text that other people wrote.
ApiStatus check_written_placeholders(const ApiFields& fields, const ServedModel& model,
                                     std::span<const std::string_view> keys);

// Returns the options for rendering. They lack the tools if the generic format is used, because with_generic_tools()
// then writes the tools into the messages.
RenderOptions render_options(const ServedModel& model, const Json& tools, const Json& variables,
                             bool generation_prompt);

// Renders and tokenises the conversation. If the last message cannot be continued, the error names the field
// "continue_final_message". Any other error names "chat_template" if the request brought its own template, and
// otherwise "messages".
ApiResult<ChatPrompt> make_prompt(const ServedModel& model, Conversation conversation);

// Replaces each image's placeholder in the prompt by the image's tokens.
ApiStatus add_images(const ServedModel& model, std::span<const GivenImage> given, ChatPrompt& prompt);

}  // namespace tessera
