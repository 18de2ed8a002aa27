// Splits a chat choice's text into reasoning, content and tool calls while it arrives.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/tools/chat_tools.h"
#include "tessera/server/tools/tool_call_parser.h"
#include "tessera/text/chat/chat_format.h"

namespace tessera {

struct ChatTextStyle {
  ToolChoice choice = ToolChoice::kNone;
  std::string named{};                   // the function's name, with kNamed
  std::string_view id_prefix = "call_";  // begins the ids of calls
  bool parallel = true;                  // with kAuto; false: only the first call counts
  std::string tool_call_parser{};        // the parser's name, with kAuto
  Json tools{};                          // the request's tools, with kAuto
  std::string reasoning_parser{};        // "": reasoning stays in the content
  bool prompt_opens_reasoning = false;   // the prompt ends inside the reasoning; used by the server's own parsers
  // Plugin formats that replace the server's own parsers. Each is set if the matching parser name above is the name of
  // a plugin format.
  std::shared_ptr<const ChatFormat> call_format{};
  std::shared_ptr<const ChatFormat> reasoning_format{};
  // Says where the text begins: before, inside or after the reasoning. Used only with reasoning_format. text_style_of()
  // sets it from the reasoning marks that it finds in the prompt.
  ReasoningStart reasoning_start = ReasoningStart::kBefore;
};

struct ChatPieces {
  std::string reasoning{};
  std::string content{};
  std::vector<ToolCallDelta> calls{};
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

class ChatText {
 public:
  // `style` outlives the object.
  explicit ChatText(const ChatTextStyle& style);
  ChatText(ChatText&&) noexcept;
  ~ChatText();

  ChatPieces push(std::string_view text);
  // Returns the text that was held back. Call it at the end of the text.
  ChatPieces finish();
  // Returns whether the next token belongs to the reasoning, as far as the text so far shows.
  bool in_reasoning() const;
  // Returns the plugin format's error, if it has failed. After an error, the rest of the text is dropped.
  const Status& status() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
