// Texts that a chat format from outside reads (text/chat_format.h), in the place of the server's own parsers. What it
// gives is held against what answers need; an error is the format's fault and ends the request.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/fields/json_scanner.h"
#include "tessera/server/tools/known_tools.h"
#include "tessera/server/tools/reasoning_format.h"
#include "tessera/server/tools/tool_call_parser.h"
#include "tessera/text/chat_format.h"

namespace tessera {

// As ReasoningParser.
class OutsideReasoning {
 public:
  // Shares `format`. `start`: where the text begins.
  static Result<OutsideReasoning> begin(std::shared_ptr<const ChatFormat> format, ReasoningStart start);

  Result<ReasoningText> push(std::string_view text);
  Result<ReasoningText> finish();
  bool in_reasoning() const { return in_reasoning_; }

 private:
  OutsideReasoning(std::shared_ptr<const ChatFormat> format, std::unique_ptr<ChatParser> parser, bool opened)
      : format_(std::move(format)), parser_(std::move(parser)), in_reasoning_(opened) {}
  ReasoningText sort(const std::vector<ChatPiece>& pieces);

  std::shared_ptr<const ChatFormat> format_;  // goes behind its parser
  std::unique_ptr<ChatParser> parser_;
  bool in_reasoning_;
};

// As ToolCallParser: what follows JSON that breaks inside the arguments is content. A call that begins before the last
// one's arguments are whole, or that is of no function of the request's, is an error of the format.
class OutsideCalls {
 public:
  // Shares `format`; `tools` outlives it.
  static Result<OutsideCalls> begin(std::shared_ptr<const ChatFormat> format, const Json& tools,
                                    ToolCallParser::NewId new_id);

  Result<ToolText> push(std::string_view text);
  Result<ToolText> finish();

 private:
  OutsideCalls(std::shared_ptr<const ChatFormat> format, std::unique_ptr<ChatParser> parser, const Json& tools,
               ToolCallParser::NewId new_id)
      : format_(std::move(format)), parser_(std::move(parser)), tools_(tools), new_id_(std::move(new_id)) {}
  Result<ToolText> sort(std::vector<ChatPiece> pieces);
  Status begin_call(std::string name, ToolText& out);
  void add_arguments(const std::string& text, ToolText& out);

  std::shared_ptr<const ChatFormat> format_;
  std::unique_ptr<ChatParser> parser_;
  KnownTools tools_;
  ToolCallParser::NewId new_id_;
  int calls_ = 0;
  std::string name_;       // of the call that was begun last
  JsonScanner arguments_;  // and its arguments
  bool broken_ = false;    // which are none any more
};

}  // namespace tessera
