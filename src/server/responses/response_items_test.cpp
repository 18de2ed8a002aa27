// Catches: items that become wrong messages; malformed items that are accepted, or whose error names no field; calls
// that are not mapped back to the tools of the request; and input of custom tools (free text) that is cut or changed.
#include "tessera/server/responses/response_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tessera/server/responses/custom_input.h"
#include "tessera/server/responses/encoded_text.h"
#include "tessera/server/responses/response_tools.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string messages_of(const std::string& items) {
  const Json list = *Json::parse(items, "items");
  ItemReader reader({.developer = false, .images = false});
  const ApiStatus read = reader.read(list, "input");
  return read.ok() ? reader.take().list.dump() : read.error().param + ": " + read.error().message;
}

TEST(ResponseItems, AnAssistantsItemsBecomeOneMessage) {
  EXPECT_EQ(
      messages_of(R"([
    {"role": "developer", "content": [{"type": "input_text", "text": "d"}]},
    {"type": "message", "role": "user", "content": "u"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
    {"type": "function_call", "call_id": "1", "name": "f", "namespace": "n", "arguments": "{\"x\": 1}"},
    {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "+a"},
    {"type": "function_call_output", "call_id": "1", "output": "o"},
    {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "p"}]},
    {"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}])"),
      R"([{"role": "system", "content": "d"}, {"role": "user", "content": "u"}, )"
      R"({"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [)"
      R"({"id": "1", "type": "function", "function": {"name": "n__f", "arguments": {"x": 1}}}, )"
      R"({"id": "2", "type": "function", "function": {"name": "patch", "arguments": {"input": "+a"}}}]}, )"
      R"({"role": "tool", "content": "o", "tool_call_id": "1"}, {"role": "tool", "content": "p", "tool_call_id": "2"}, )"
      R"({"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}])");
}

TEST(ResponseItems, ManyCallsBecomeAMessageInLinearTime) {
  constexpr std::size_t kCalls = 10'000;
  Json items = Json::array();
  for (std::size_t i = 0; i < kCalls; ++i)
    items.push_back(Json::object(
        {{"type", "function_call"}, {"call_id", std::to_string(i)}, {"name", "f"}, {"arguments", "{\"x\": 1}"}}));
  const std::clock_t begin = std::clock();
  ItemReader reader({});
  ASSERT_TRUE(reader.read(items, "input").ok());
  const Json list = reader.take().list;
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
  ASSERT_EQ(list.as_array().size(), 1U);
  EXPECT_EQ(list.as_array()[0].find("tool_calls")->as_array().size(), kCalls);
}

TEST(ResponseItems, BrokenArgumentsStayText) {
  for (const char* broken : {R"({\"x\": )", R"({\"x\": 1, \"x\": 2})", "[1]", "no JSON"})
    EXPECT_THAT(messages_of(R"([{"type": "function_call", "call_id": "1", "name": "f", "status": "incomplete",
                                 "arguments": ")" +
                            std::string(broken) + R"("}, {"type": "function_call_output", "call_id": "1",
                                 "output": "Error"}])"),
                HasSubstr(R"("arguments": ")" + std::string(broken) + R"("}}]}, {"role": "tool")"))
        << broken;
}

TEST(ResponseItems, EncodedReasoningIsReadAgain) {
  const std::string text("Ünder \n\0 all", 12);
  EXPECT_EQ(decode_text(encode_text(text)), text);
  const std::string encoded = encode_text("r");
  EXPECT_THAT(messages_of(R"([{"type": "reasoning", "summary": [], "encrypted_content": ")" + encoded + "\"}]"),
              HasSubstr(R"("reasoning_content": "r")"));
  std::string broken = encoded;
  broken[10] = broken[10] == '0' ? '1' : '0';
  for (const std::string& wrong : {std::string(""), std::string("gAAAA"), encoded.substr(0, 12), broken})
    EXPECT_THAT(messages_of(R"([{"type": "reasoning", "summary": [], "encrypted_content": ")" + wrong + "\"}]"),
                HasSubstr("input[0].encrypted_content: "))
        << wrong;
}

TEST(ResponseItems, AMalformedItemIsNamed) {
  struct Case {
    const char* items;
    const char* error;
  };
  for (const Case& c : {
           Case{R"([5])", "input[0]: "},
           Case{R"([{}])", "input[0].type: "},
           Case{R"([{"type": "magic"}])", "input[0].type: "},
           Case{R"([{"type": "message"}])", "input[0].role: "},
           Case{R"([{"role": "tool", "content": "a"}])", "input[0].role: "},
           Case{R"([{"role": "user"}])", "input[0].content: "},
           Case{R"([{"role": "user", "content": [5]}])", "input[0].content"},
           Case{R"([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
                "input[0].content[0].type: "},
           Case{R"([{"role": "user", "content": [{"type": "input_file"}]}])", "input[0].content[0].type: "},
           Case{R"([{"type": "function_call", "name": "f"}])", "input[0].call_id: "},
           Case{R"([{"type": "function_call", "call_id": "1"}])", "input[0].name: "},
           Case{R"([{"type": "function_call", "call_id": "1", "name": "f"}])", "input[0].arguments: "},
           Case{R"([{"type": "function_call", "call_id": "1", "name": "f", "arguments": 5}])", "input[0].arguments: "},
           Case{R"([{"type": "custom_tool_call", "call_id": "1", "name": "f"}])", "input[0].input: "},
           Case{R"([{"type": "function_call_output", "call_id": "1", "output": "a"}])", "input[0].call_id: "},
           Case{R"([{"type": "reasoning", "content": [{"type": "reasoning_text"}]}])", "input[0].content[0].text: "},
           Case{R"([{"type": "function_call", "call_id": "1", "name": "f", "arguments": ""},
                    {"type": "function_call", "call_id": "1", "name": "f", "arguments": ""}])",
                "input[1].call_id: "},
           Case{R"([{"type": "function_call", "call_id": "1", "name": "f", "arguments": ""},
                    {"type": "function_call_output", "call_id": "1"}])",
                "input[1].output: "},
       })
    EXPECT_THAT(messages_of(c.items), ::testing::StartsWith(c.error)) << c.items;
}

TEST(ResponseItems, KeptItemsHaveIdsAndParts) {
  const std::string text =
      kept_items(*Json::parse(R"([{"role": "user", "content": "u"}, {"id": "fc_1", "type": "function_call",
    "call_id": "1", "name": "f", "arguments": "{}"}])",
                              "items"));
  const Json kept = *Json::parse(text, "kept items");
  const Json& message = kept.as_array()[0];
  EXPECT_THAT(message.find("id")->as_string(), ::testing::StartsWith("msg_"));
  EXPECT_EQ(message.find("content")->dump(), R"([{"type": "input_text", "text": "u"}])");
  EXPECT_EQ(*kept.as_array()[1].find("id"), Json("fc_1"));
  EXPECT_EQ(kept_items(kept), text) << "kept items stay as they are";
}

ApiResult<ResponseTools> tools_of(const std::string& body) {
  const Json json = *Json::parse(body, "body");
  return read_response_tools(ApiFields(json));
}

constexpr const char* kTools = R"("tools": [
  {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true},
  {"type": "custom", "name": "patch", "description": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}},
  {"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "read"}]},
  {"type": "web_search"}, {"type": "web_search"}])";

TEST(ResponseTools, EveryKindIsShownAsAFunction) {
  ApiResult<ResponseTools> tools = tools_of(std::string("{") + kTools + "}");
  ASSERT_TRUE(tools.ok()) << tools.error().message;
  EXPECT_THAT(tools->skipped, ElementsAre("web_search"));
  EXPECT_EQ(tools->fields.choice, ToolChoice::kAuto);
  EXPECT_EQ(tools->fields.tools.as_array().size(), 3U);
  EXPECT_TRUE(tools->find("patch")->custom);
  EXPECT_THAT(tools->fields.tools.dump(), HasSubstr("The input must follow this grammar (lark):\\nstart: A"));
  const ResponseTool* nested = tools->find("mcp__files__read");
  ASSERT_NE(nested, nullptr);
  EXPECT_EQ(nested->name, "read");
  EXPECT_EQ(nested->space, "mcp__files__");
}

TEST(ResponseTools, ChoicesNameTools) {
  const auto with = [](const std::string& choice) {
    return tools_of(std::string("{") + kTools + ", \"tool_choice\": " + choice + "}");
  };
  EXPECT_EQ(with("\"none\"")->fields.choice, ToolChoice::kNone);
  EXPECT_TRUE(with("\"none\"")->fields.tools.is_null());
  EXPECT_EQ(with("\"required\"")->fields.choice, ToolChoice::kRequired);
  EXPECT_EQ(with(R"({"type": "function", "name": "read", "namespace": "mcp__files__"})")->fields.named,
            "mcp__files__read");
  ApiResult<ResponseTools> allowed =
      with(R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "patch"}]})");
  EXPECT_EQ(allowed->list.size(), 1U);
  EXPECT_EQ(allowed->fields.tools.as_array().size(), 1U);
  EXPECT_EQ(allowed->fields.choice, ToolChoice::kRequired);
  for (const auto& [choice, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {"5", "tool_choice"},
           {R"({"type": "function", "name": "g"})", "tool_choice.name"},
           {R"({"type": "web_search"})", "tool_choice.type"},
           {R"({"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]})", "tool_choice.tools[0].name"},
           {R"({"type": "allowed_tools", "mode": "no", "tools": []})", "tool_choice.mode"}})
    EXPECT_EQ(with(choice).error().param, param) << choice;
}

TEST(ResponseTools, AWrongToolIsNamed) {
  for (const auto& [tools, param] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[5]", "tools[0]"},
           {"[{}]", "tools[0].type"},
           {R"([{"type": "function"}])", "tools[0].name"},
           {R"([{"type": "function", "name": "f", "parameters": 5}])", "tools[0].parameters"},
           {R"([{"type": "custom", "name": "f", "format": {"type": "x"}}])", "tools[0].format.type"},
           {R"([{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}])", "tools[0].tools[0].name"},
           {R"([{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}])", "tools[1].name"}})
    EXPECT_EQ(tools_of(std::string("{\"tools\": ") + tools + "}").error().param, param) << tools;
}

std::string input_of(std::string_view arguments, std::size_t piece) {
  CustomInput input;
  std::string text;
  for (std::size_t at = 0; at < arguments.size(); at += piece) text += input.push(arguments.substr(at, piece));
  return text + input.finish();
}

TEST(CustomInput, TextIsTheSameHoweverItIsCut) {
  for (std::size_t piece = 1; piece < 60; ++piece) {
    EXPECT_EQ(input_of(R"({"input": "a\n\"\\\/b\u00e9\ud83d\ude00\ud800x é"})", piece), "a\n\"\\/bé😀\uFFFDx é")
        << piece;
    EXPECT_EQ(input_of(R"({"more": {"input": "no"}, "input" : "yes"})", piece), "yes") << piece;
    EXPECT_EQ(input_of(R"({"other": "x"})", piece), R"({"other": "x"})") << piece;
    EXPECT_EQ(input_of("plain", piece), "plain") << piece;
    EXPECT_EQ(input_of(R"({"input": "cut o)", piece), "cut o") << piece;
  }
}

}  // namespace
}  // namespace tessera
