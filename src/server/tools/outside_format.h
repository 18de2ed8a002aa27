// Reads text with a plugin's chat format (text/chat/chat_format.h) in place of the server's own parsers. Checks the
// plugin's output, because answers rely on its form. A violation is the plugin's error and ends the request.
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
#include "tessera/text/chat/chat_format.h"

namespace tessera {

// Separates reasoning from content, like ReasoningParser.
class OutsideReasoning {
 public:
  // Begins a text. Shares ownership of `format`. `start` says whether the text begins before, inside or after the
  // reasoning.
  static Result<OutsideReasoning> begin(std::shared_ptr<const ChatFormat> format, ReasoningStart start);

  Result<ReasoningText> push(std::string_view text);
  Result<ReasoningText> finish();
  bool in_reasoning() const { return in_reasoning_; }

 private:
  OutsideReasoning(std::shared_ptr<const ChatFormat> format, std::unique_ptr<ChatParser> parser, bool opened)
      : format_(std::move(format)), parser_(std::move(parser)), in_reasoning_(opened) {}
  ReasoningText sort(const std::vector<ChatPiece>& pieces);

  std::shared_ptr<const ChatFormat> format_;  // declared before `parser_`, so that it is destroyed later
  std::unique_ptr<ChatParser> parser_;
  bool in_reasoning_;
};

// Finds tool calls, as ToolCallParser does. If the JSON of the arguments becomes invalid, the text from there on
// becomes content. It is the plugin's error if a call begins before the previous call's arguments are complete, or
// names a function that the request does not have.
class OutsideCalls {
 public:
  // Begins a text. Shares ownership of `format`. `tools` outlives the object.
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
  std::string name_;       // name of the latest call
  JsonScanner arguments_;  // arguments of the latest call
  bool broken_ = false;    // the latest call's arguments were not valid JSON
};

}  // namespace tessera
