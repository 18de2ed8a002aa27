// A chat choice's text taken apart as it comes: reasoning, content, tool calls.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/openai/chat_tools.h"
#include "tessera/server/tools/tool_call_parser.h"
#include "tessera/text/chat_format.h"

namespace tessera {

struct ChatTextStyle {
  ToolChoice choice = ToolChoice::kNone;
  std::string named{};                  // with kNamed
  bool parallel = true;                 // with kAuto: more than the first call counts
  std::string tool_call_parser{};       // with kAuto
  Json tools{};                         // with kAuto
  std::string reasoning_parser{};       // "": reasoning is content
  bool prompt_opens_reasoning = false;  // of the server's own parsers
  // In the place of the server's own, where the names are those of formats from outside.
  std::shared_ptr<const ChatFormat> call_format{};
  std::shared_ptr<const ChatFormat> reasoning_format{};
  ReasoningStart reasoning_start = ReasoningStart::kBefore;  // of reasoning_format, by its marks
};

struct ChatPieces {
  std::string reasoning{};
  std::string content{};
  std::vector<ToolCallDelta> calls{};
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

class ChatText {
 public:
  // `style` outlives it.
  explicit ChatText(const ChatTextStyle& style);
  ChatText(ChatText&&) noexcept;
  ~ChatText();

  ChatPieces push(std::string_view text);
  // What was held back, at the text's end.
  ChatPieces finish();
  // Whether the next token belongs to the reasoning, as far as is known.
  bool in_reasoning() const;
  // What a format from outside did wrong; nothing more comes of the text then.
  const Status& status() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
