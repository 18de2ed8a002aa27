// Finds a model's tool calls in its text, as it comes.
//
//   ToolCallParser parser = TRY(ToolCallParser::create("hermes", tools, [] { return make_id("call_"); }));
//   for (delta : deltas) send(parser.push(delta));
//   send(parser.finish());
//
// hermes, qwen25, qwen     <tool_call>{"name": …, "arguments": {…}}</tool_call>, one after the other
// llama3                   the whole text is {"name": …, "parameters": {…}}, or it comes behind <|python_tag|>; several
//                          parted by ";"
// mistral                  [TOOL_CALLS] [{"name": …, "arguments": {…}}, …], at the beginning of the text also without
//                          the mark; or [TOOL_CALLS]NAME[ARGS]{…} for each call
// deepseekv3, deepseekv31  <｜tool▁call▁begin｜>…<｜tool▁call▁end｜> with the name in front of the arguments
// qwen3_coder              <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>
// glm45                    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>
// gpt-oss                  <|channel|>commentary to=functions.NAME<|message|>{…}<|call|>
// generic                  as hermes; at the beginning of the text also the object alone, in a fence of Markdown or not
// Some have further names: those of SGLang and vLLM.
//
// A call counts when its name is known and its arguments begin; from there its arguments are handed on as they are
// written, so that all pieces of a finished call together are valid JSON. Values that stand between tags become JSON by
// the function's schema (tagged_call_body.h). What looks like a call and is none (another form, a function that is not
// among the tools, an end in the middle) is content, tags included. What follows JSON that breaks inside the arguments
// is content too. White space around calls goes. The answers together do not depend on where the text was cut. One text
// per object, one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/server/tools/call_body.h"
#include "tessera/server/tools/call_format.h"
#include "tessera/server/tools/known_tools.h"
#include "tessera/server/tools/marker_finder.h"

namespace tessera {

// What a piece of text adds to a call.
struct ToolCallDelta {
  int index = 0;     // of the call, from 0
  std::string id{};  // set in the call's first delta, as the name
  std::string name{};
  std::string arguments{};  // part of the text of a JSON object
};

struct ToolText {
  std::string content{};
  std::vector<ToolCallDelta> calls{};
};

class ToolCallParser {
 public:
  using NewId = std::function<std::string()>;

  // `tools`: the request's, [{"function": {"name": …, "parameters": …}}, …], which outlives the parser; null: any name
  // is a function's. An unknown `name` is invalid_argument.
  static Result<ToolCallParser> create(std::string_view name, const Json& tools, NewId new_id);

  ToolText push(std::string_view text);
  // Hands out the text that was held back.
  ToolText finish();

 private:
  enum class Phase : std::uint8_t { kContent, kHead, kBody, kTail };

  ToolCallParser(std::unique_ptr<CallFormat> format, KnownTools tools, NewId new_id);
  void take(char c);
  void take_content(char c);
  void begin_call(std::string_view mark);
  void take_head(char c);
  bool begin_body(std::unique_ptr<CallBody> body);
  void take_body(char c);
  void take_tail(char c);
  void add_content(std::string_view text);
  void refuse_head(std::optional<char> next);
  void refuse_body(std::optional<char> next);
  void hand_on();
  void end_head();
  CallFormat::Place place() const { return {.at_beginning = !has_content_ && calls_ == 0, .after_calls = calls_ > 0}; }

  std::unique_ptr<CallFormat> format_;
  KnownTools tools_;
  NewId new_id_;
  std::vector<std::string_view> marks_;
  MarkerFinder finder_;
  Phase phase_ = Phase::kContent;
  ToolText out_;
  std::string spaces_;         // white space that goes if a call follows
  std::string raw_;            // what is content if this is no call
  std::size_t mark_size_ = 0;  // its first bytes that are no other call's beginning
  std::string tail_;           // what has come behind the body
  bool has_content_ = false;
  bool counts_ = false;    // the call that is being read is one
  bool is_known_ = false;  // its name was looked up
  int calls_ = 0;          // that count
  std::unique_ptr<CallBody> body_;
};

// The names that create() takes.
std::vector<std::string_view> tool_call_parser_names();
// For a model with this chat template; "" where it shows no form that is known.
std::string_view guess_tool_call_parser(std::string_view chat_template);

}  // namespace tessera
