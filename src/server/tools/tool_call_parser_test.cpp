// Catches: calls that are missed, or found in text without calls; arguments that are not JSON or differ from the
// model's; text that is lost or shown twice; and results that depend on where the deltas end.
#include "tessera/server/tools/tool_call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/server/tools/tool_call_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Json& weather_tools() {
  static const Json kTools = *Json::parse(
      R"([{"type": "function", "function": {"name": "get"}}, {"type": "function", "function": {"name": "set"}}])",
      "tools");
  return kTools;
}

template <class Cut>
Parsed parse(std::string_view name, std::string_view text, Cut cut) {
  return parse_calls(name, weather_tools(), text, cut);
}

Parsed whole(std::string_view name, std::string_view text) {
  return parse(name, text, [&] { return text.size(); });
}

ToolCallParser make_parser(std::string_view name) {
  return *ToolCallParser::create(name, weather_tools(), [] { return "id"; });
}

// Returns a result with content and without calls.
Parsed only(std::string content) { return {std::move(content), {}}; }

TEST(ToolCallParser, ReadsHermesCalls) {
  EXPECT_EQ(whole("hermes", "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": [1, \"é\"]}}\n</tool_call>"),
            (Parsed{"", {{"get", "{\"a\": [1, \"é\"]}"}}}));
  EXPECT_EQ(
      whole("qwen25",
            "Both. \n\n<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>\n<tool_call>{\"arguments\": "
            "{\"b\": 2}, \"name\": \"set\"}</tool_call>\n"),
      (Parsed{"Both.", {{"get", "{}"}, {"set", "{\"b\": 2}"}}}));
  EXPECT_EQ(whole("qwen", "<tool_call>{\"name\": \"get\", \"arguments\": {}}</tool_call>\nDone."),
            (Parsed{"\nDone.", {{"get", "{}"}}}));
  // Tests calls without the closing tag, because the model forgot it or the text was cut off.
  EXPECT_EQ(whole("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": {}}<tool_call>{\"name\": \"set\"}"),
            (Parsed{"", {{"get", "{}"}, {"set", "{}"}}}));
  EXPECT_EQ(whole("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": {}}\n</tool_c"),
            (Parsed{"", {{"get", "{}"}}}));
  EXPECT_EQ(whole("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": {\"a\": 1"),
            (Parsed{"", {{"get", "{\"a\": 1"}}}));
}

TEST(ToolCallParser, ReadsLlama3Calls) {
  EXPECT_EQ(whole("llama3", R"({"name": "get", "parameters": {"a": "}"}})"), (Parsed{"", {{"get", R"({"a": "}"})"}}}));
  EXPECT_EQ(
      whole("llama3", "<|python_tag|>{\"name\": \"get\", \"parameters\": {}}; {\"name\": \"set\", \"parameters\": {}}"),
      (Parsed{"", {{"get", "{}"}, {"set", "{}"}}}));
  EXPECT_EQ(whole("llama3", "\n{\"type\": \"function\", \"name\": \"get\", \"parameters\": {\"a\": 1}}\n"),
            (Parsed{"", {{"get", "{\"a\": 1}"}}}));
  EXPECT_EQ(whole("llama3", R"({"answer": 42})"), only(R"({"answer": 42})"));
  EXPECT_EQ(whole("llama3", R"(See {"name": "get", "parameters": {}})"),
            only(R"(See {"name": "get", "parameters": {}})"));
  EXPECT_EQ(whole("llama3", R"(<{"name": "get", "parameters": {}})"), only(R"(<{"name": "get", "parameters": {}})"));
  EXPECT_EQ(whole("llama3", "<|python_tag|>print(1)"), only("<|python_tag|>print(1)"));
  EXPECT_EQ(whole("llama3", R"({"name": "get", "parameters": {}}; and more)"), (Parsed{"; and more", {{"get", "{}"}}}));
}

TEST(ToolCallParser, ReadsMistralCalls) {
  EXPECT_EQ(
      whole("mistral", R"([TOOL_CALLS] [{"name": "get", "arguments": {"a": 1}}, {"name": "set", "arguments": {}}])"),
      (Parsed{"", {{"get", R"({"a": 1})"}, {"set", "{}"}}}));
  EXPECT_EQ(whole("mistral", R"(Yes.[TOOL_CALLS][{"name": "get", "arguments": {}, "id": "123456789"}])"),
            (Parsed{"Yes.", {{"get", "{}"}}}));
  EXPECT_EQ(whole("mistral", "[TOOL_CALLS] []"), only("[TOOL_CALLS] []"));
  EXPECT_EQ(whole("mistral", R"( [{"name": "get", "arguments": {}}])"), (Parsed{"", {{"get", "{}"}}}));
  EXPECT_EQ(whole("mistral", R"([1] [{"name": "get", "arguments": {}}])"),
            only(R"([1] [{"name": "get", "arguments": {}}])"));
  EXPECT_EQ(whole("mistral", "[TOOL_CALLS] {\"name\": \"get\"}"), only("[TOOL_CALLS] {\"name\": \"get\"}"));
}

TEST(ToolCallParser, ReadsDeepseekCalls) {
  EXPECT_EQ(
      whole("deepseekv3",
            "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"a\": "
            "1}\n```<｜tool▁call▁end｜>\n"
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>set\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      (Parsed{"Ok.", {{"get", "{\"a\": 1}"}, {"set", "{}"}}}));
  EXPECT_EQ(whole("deepseekv31",
                  "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"a\": "
                  "1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            (Parsed{"", {{"get", "{\"a\": 1}"}}}));
  const std::string unknown = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>put<｜tool▁sep｜>{}<｜tool▁call▁end｜>";
  EXPECT_EQ(whole("deepseekv31", unknown), only(unknown));
}

TEST(ToolCallParser, ReadsGenericCalls) {
  const std::string call = R"({"name": "get", "arguments": {"a": 1}})";
  const Parsed found{"", {{"get", R"({"a": 1})"}}};
  for (const std::string& text : {call, "\n" + call + "\n", "<tool_call>\n" + call + "\n</tool_call>",
                                  "```json\n" + call + "\n```\n", " ```json" + call + "```", "```json\n" + call}) {
    EXPECT_EQ(whole("generic", text), found) << text;
  }
  EXPECT_EQ(
      whole("generic", "I look.\n<tool_call>" + call + "</tool_call>\n<tool_call>{\"name\": \"set\"}</tool_call>"),
      (Parsed{"I look.", {{"get", R"({"a": 1})"}, {"set", "{}"}}}));
  EXPECT_EQ(whole("generic", "```json\n" + call + "\n``` and more"), (Parsed{" and more", {{"get", R"({"a": 1})"}}}));
  // These texts contain no call, each for one of these reasons: other text precedes a call without tags; the function
  // is unknown; the JSON is not a call; or the text ends after a fence.
  for (const std::string& text :
       {"Write " + call, "Write\n```json\n" + call + "\n```", std::string(R"({"name": "put", "arguments": {}})"),
        std::string("```json\n{\"answer\": 42}\n```"), std::string("```json"), std::string("```"),
        std::string("<tool_call>{\"name\": \"put\"}</tool_call>")}) {
    EXPECT_EQ(whole("generic", text), only(text));
  }
}

TEST(ToolCallParser, TextThatIsNoCallIsContent) {
  for (const char* text :
       {"", " ", "Hello.\n", "<tool_call>", "<tool_call", "<tool_call>no json</tool_call>",
        "<tool_call>\n[1]\n</tool_call>", "<tool_call>{\"name\": \"get\"",
        "<tool_call>{\"name\": \"put\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 7, \"arguments\": {}}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"get\", \"arguments\": [1]}</tool_call>", "<tool_call>{\"name\": \"get\",}</tool_call>",
        "<tool_call>{\"name\": \"get\", \"arguments\": \"{\"}</tool_call>", "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"name\": \"get\", \"name\": \"get\"}</tool_call>"}) {
    EXPECT_EQ(whole("hermes", text), only(text));
  }
  // A valid call after an invalid one counts. JSON that breaks off inside the arguments ends the call.
  EXPECT_EQ(whole("hermes", "<tool_call><tool_call>{\"name\": \"get\", \"arguments\": {}}</tool_call>"),
            (Parsed{"<tool_call>", {{"get", "{}"}}}));
  EXPECT_EQ(whole("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": {\"a\": b}}</tool_call>"),
            (Parsed{"b}}</tool_call>", {{"get", "{\"a\": "}}}));
}

TEST(ToolCallParser, ArgumentsMayBeInAStringOrMissing) {
  EXPECT_EQ(whole("hermes", R"(<tool_call>{"name": "get", "arguments": "{\"a\": 1}"}</tool_call>)"),
            (Parsed{"", {{"get", R"({"a": 1})"}}}));
  EXPECT_EQ(whole("hermes", R"(<tool_call>{"name": "get", "arguments": null}</tool_call>)"),
            (Parsed{"", {{"get", "{}"}}}));
}

TEST(ToolCallParser, WithoutToolsEveryNameIsAccepted) {
  ToolCallParser parser = *ToolCallParser::create("hermes", Json(), [] { return "x"; });
  EXPECT_EQ(parser.push(R"(<tool_call>{"name": "any", "arguments": {}})").calls.at(0).name, "any");
}

TEST(ToolCallParser, TextThatIsCertainlyContentIsSentAtOnce) {
  ToolCallParser parser = make_parser("hermes");
  EXPECT_EQ(parser.push("Hi <").content, "Hi");
  EXPECT_EQ(parser.push("b").content, " <b");
  EXPECT_THAT(parser.push("<tool_call>{\"name\": \"get\", \"argum").calls, IsEmpty());
  const ToolText begun = parser.push("ents\": {\"a\"");
  ASSERT_EQ(begun.calls.size(), 1u);
  EXPECT_EQ(begun.calls[0].name, "get");
  EXPECT_EQ(begun.calls[0].arguments, "{\"a\"");
  const ToolText more = parser.push(": \"x");
  ASSERT_EQ(more.calls.size(), 1u);
  EXPECT_EQ(more.calls[0].name, "");
  EXPECT_EQ(more.calls[0].arguments, ": \"x");
  EXPECT_EQ(parser.push("y\"}}\n</tool_").calls.at(0).arguments, "y\"}");
  EXPECT_EQ(parser.push("call>").content, "");
}

std::string random_text(std::mt19937& random) {
  constexpr const char* kWords[] = {"<tool_call>",
                                    "</tool_call>",
                                    "[TOOL_CALLS]",
                                    "<|python_tag|>",
                                    "{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ";",
                                    ":",
                                    "\"",
                                    "{\"name\": \"get\", \"arguments\": {\"a\": [",
                                    "<tool_call>{\"name\": \"get\"}</tool_call>",
                                    "[TOOL_CALLS] [{\"name\": \"set\", \"arguments\": ",
                                    "\"name\": \"get\"",
                                    "\"arguments\": {",
                                    "\"parameters\": {}",
                                    "\"a\": 1",
                                    " ",
                                    "\n",
                                    "x",
                                    "é",
                                    "<",
                                    "{\"name\": \"set\", \"arguments\": {\"k\": \"v\"}}",
                                    "<｜tool▁call▁begin｜>",
                                    "get<｜tool▁sep｜>",
                                    "{}",
                                    "<｜tool▁call▁end｜>",
                                    "<｜tool▁calls▁begin｜>",
                                    "```",
                                    "```json",
                                    "[TOOL_CALLS]get[ARGS]{\"a\": 1}",
                                    "[CALL_ID]",
                                    "[ARGS]",
                                    "<tool_call>\n<function=get>\n<parameter=a>\n",
                                    "<function=set>",
                                    "<parameter=b>",
                                    "\n</parameter>\n",
                                    "</function>",
                                    "<tool_call>get\n<arg_key>a</arg_key>\n<arg_value>",
                                    "</arg_value>\n<arg_key>b</arg_key><arg_value>",
                                    "</arg_value></tool_call>",
                                    "<tool_call>set",
                                    "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"a\": ",
                                    "<|start|>assistant to=functions.set<|channel|>commentary json",
                                    "<|message|>",
                                    "<|call|>",
                                    " to=",
                                    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get\">\n",
                                    "<｜DSML｜parameter name=\"a\" string=\"true\">",
                                    "</｜DSML｜parameter>\n</｜DSML｜invoke>",
                                    "</｜DSML｜function_calls>"};
  std::string text;
  for (auto i = random() % 14; i > 0; --i) text += kWords[random() % std::size(kWords)];
  return text;
}

TEST(ToolCallParser, ResultsDoNotDependOnTheCuts) {
  std::mt19937 random(8);
  int calls = 0;
  for (int round = 0; round < 40'000; ++round) {
    const std::string text = random_text(random);
    const std::string_view name = tool_call_parser_names()[random() % tool_call_parser_names().size()];
    const Parsed expected = whole(name, text);
    ASSERT_EQ(parse(name, text, [] { return 1; }), expected) << name << ": " << text;
    ASSERT_EQ(parse(name, text, [&] { return 1 + random() % 12; }), expected) << name << ": " << text;
    if (expected.calls.empty()) {
      ASSERT_EQ(expected.content, text) << name;
    }
    calls += static_cast<int>(expected.calls.size());
  }
  EXPECT_GT(calls, 1000);
}

TEST(ToolCallParser, RefusesUnknownNames) {
  EXPECT_THAT(ToolCallParser::create("pythonic", weather_tools(), [] { return ""; }).status().message(),
              ::testing::HasSubstr("tool call parser \"pythonic\"; accepted: hermes, qwen25, "));
}

}  // namespace
}  // namespace tessera
