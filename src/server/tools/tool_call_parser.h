// Finds the tool calls in a model's text as it arrives.
//
//   ToolCallParser parser = TRY(ToolCallParser::create("hermes", tools, [] { return make_id("call_"); }));
//   for (delta : deltas) send(parser.push(delta));
//   send(parser.finish());
//
// name                     form of the calls
// hermes, qwen25, qwen     <tool_call>{"name": …, "arguments": {…}}</tool_call>, one after the other
// llama3                   the whole text is {"name": …, "parameters": {…}}, or the call comes after <|python_tag|>;
//                          ";" separates several calls
// mistral                  [TOOL_CALLS] [{"name": …, "arguments": {…}}, …], where [TOOL_CALLS] may be missing at the
//                          beginning of the text; or [TOOL_CALLS]NAME[ARGS]{…} for each call
// deepseekv3, deepseekv31  <｜tool▁call▁begin｜>…<｜tool▁call▁end｜> with the name before the arguments
// deepseekv32              <｜DSML｜invoke name="NAME"> with <｜DSML｜parameter name="KEY" string="true">VALUE tags
// qwen3_coder              <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>
// glm45                    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>
// gpt-oss                  <|channel|>commentary to=functions.NAME<|message|>{…}<|call|>
// generic                  like hermes; at the beginning of the text, the object may also stand without tags, with or
//                          without a Markdown fence
//
// Some formats also have the names that SGLang and vLLM give them.
//
// A call counts once its name is known and its arguments begin. From then on its arguments are passed on as they
// arrive, and all pieces of a finished call together are valid JSON. Values between tags become JSON by the function's
// schema (tagged_call_body.h). Text that looks like a call but is not one is content, including its tags: a call in
// another format, a call of a function that is not among the tools, or a call that is cut off by the end of the text
// before it counts. If the JSON of the arguments becomes invalid, the call ends there, and its remaining text is
// content. White space around calls is dropped. The concatenated results of push() and finish() do not depend on where
// the text was cut. An object reads one text, on one thread at a time.
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
  int index = 0;     // the call's index, from 0
  std::string id{};  // set in the call's first delta, together with the name
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

  // `tools` is the request's list, [{"function": {"name": …, "parameters": …}}, …], and outlives the parser. If it is
  // null, every name counts as a function. Returns invalid_argument for an unknown `name`.
  static Result<ToolCallParser> create(std::string_view name, const Json& tools, NewId new_id);

  ToolText push(std::string_view text);
  // Returns the text that was held back.
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
  std::string spaces_;         // white space that is dropped if a call follows
  std::string raw_;            // text that becomes content if it is not a call
  std::size_t mark_size_ = 0;  // number of bytes at the front of raw_ that cannot begin another call
  std::string tail_;           // text after the body
  bool has_content_ = false;
  bool counts_ = false;    // the current call counts: its name is known and its arguments have begun
  bool is_known_ = false;  // the current call's name was looked up
  int calls_ = 0;          // number of calls that count
  std::unique_ptr<CallBody> body_;
};

// Returns the names that create() accepts.
std::vector<std::string_view> tool_call_parser_names();
// Returns the name of the parser for a model with this chat template; "" if the template shows no known format.
std::string_view guess_tool_call_parser(std::string_view chat_template);

}  // namespace tessera
