// Tests the formats of Qwen3-Coder, GLM, gpt-oss, Mistral and DeepSeek V3.2. Catches: calls that are missed or cut at
// the wrong place; arguments of the wrong type; text that is lost; tags that are shown to the user; and answers that
// depend on where the deltas end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/server/tools/tool_call_test_util.h"

namespace tessera {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const Json& tools() {
  static const Json kTools = *Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
      "above": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}},
      "at": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object", "properties": {
      "path": {"type": "string"}, "content": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "now"}}])",
                                          "tools");
  return kTools;
}

void expect(std::string_view name, std::string_view text, const Parsed& expected) {
  expect_calls(name, tools(), text, expected);
}

void expect_content(std::string_view name, const std::string& text) { expect(name, text, {text, {}}); }

TEST(ToolCallFormats, ReadsQwen3CoderCalls) {
  expect("qwen3_coder",
         "I'll look that up.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSão Paulo\n</parameter>\n"
         "<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=above>\n-1.5e3\n"
         "</parameter>\n<parameter=tags>\n[\"wind\", \"rain\"]\n</parameter>\n<parameter=at>\nnull\n</parameter>\n"
         "</function>\n</tool_call>",
         {"I'll look that up.",
          {{"get_weather",
            "{\"city\": \"São Paulo\", \"days\": 3, \"metric\": true, \"above\": -1.5e3, \"tags\": "
            "[\"wind\", \"rain\"], \"at\": null}"}}});
  // Checks several calls, one of them without arguments, with text between and after the calls.
  expect("qwen3_xml",
         "<tool_call>\n<function=now>\n</function>\n</tool_call>\nand\n<tool_call>\n<function=get_weather>\n"
         "<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>\n\nDone.",
         {"\nand\n\nDone.", {{"now", "{}"}, {"get_weather", "{\"city\": \"Oslo\"}"}}});
  // Tests a call without <tool_call>, and calls without </tool_call>.
  expect("qwen3_coder", "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
         {"", {{"get_weather", "{\"city\": \"Oslo\"}"}}});
  expect("qwen3_coder", "<tool_call><function=now></function><tool_call><function=now></function>",
         {"", {{"now", "{}"}, {"now", "{}"}}});
}

TEST(ToolCallFormats, Qwen3CoderValuesKeepTheirText) {
  // Checks values with line breaks, quotes, backslashes, tags, and spaces at the ends.
  expect("qwen3_coder",
         "<tool_call>\n<function=write_file>\n<parameter=path>\n a b.xml \n</parameter>\n<parameter=content>\n"
         "\n\tif a < b && s == \"</p\\n\":\n<parameter=>\n</parameter>x</function>\n<b>é世</b>\n\n</parameter>\n"
         "</function>\n</tool_call>",
         {"",
          {{"write_file",
            "{\"path\": \" a b.xml \", \"content\": \"\\n\\tif a < b && s == "
            "\\\"</p\\\\n\\\":\\n<parameter=>\\n</parameter>x</function>\\n<b>é世</b>\\n\"}"}}});
  // The tag of a parameter that the function does not have is part of the value.
  expect("qwen3_coder",
         "<function=write_file><parameter=content>\nSee\n<parameter=x>\n1\n</parameter>\n</function></tool_call>",
         {"", {{"write_file", "{\"content\": \"See\\n<parameter=x>\\n1\"}"}}});
  expect("qwen3_coder",
         "<function=get_weather>\n<parameter=city>\n\n</parameter>\n<parameter=at></parameter></function>",
         {"", {{"get_weather", "{\"city\": \"\", \"at\": \"\"}"}}});
}

TEST(ToolCallFormats, ReadsQwen3CoderValuesWithoutEnds) {
  // Tests values without the tags that models sometimes forget.
  const Parsed found{"", {{"write_file", "{\"path\": \"a\", \"content\": \"b\"}"}}};
  expect("qwen3_coder",
         "<tool_call>\n<function=write_file>\n<parameter=path>\na\n<parameter=content>\nb\n</parameter>\n</function>\n"
         "</tool_call>",
         found);
  expect("qwen3_coder",
         "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</function>\n"
         "</tool_call>",
         found);
  expect("qwen3_coder",
         "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</parameter>\n"
         "</tool_call>",
         found);
  expect("qwen3_coder", "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</function>",
         found);
}

TEST(ToolCallFormats, ReadsGlmCalls) {
  expect("glm45",
         "\nLet me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>東京</arg_value>\n"
         "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>metric</arg_key>\n<arg_value>false</arg_value>\n"
         "<arg_key>tags</arg_key>\n<arg_value>[]</arg_value>\n<arg_key>at</arg_key>\n<arg_value>noon</arg_value>\n"
         "</tool_call>",
         {"\nLet me see.",
          {{"get_weather", "{\"city\": \"東京\", \"days\": 2, \"metric\": false, \"tags\": [], \"at\": \"noon\"}"}}});
  // GLM-4.7 writes a call on one line.
  expect("glm47",
         "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call><tool_call>now"
         "</tool_call>ok",
         {"ok", {{"get_weather", "{\"city\": \"Oslo\"}"}, {"now", "{}"}}});
  expect("glm4_moe", "<tool_call>now\n</tool_call>", {"", {{"now", "{}"}}});
  // The value contains tags.
  expect("glm45",
         "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a\n</arg_value>\n<arg_key>content</arg_key>\n"
         "<arg_value>\"</arg_value>\" and </tool_call> end < a\\\n\n</arg_value>\n</tool_call>\n",
         {"",
          {{"write_file",
            "{\"path\": \"a\\n\", \"content\": \"\\\"</arg_value>\\\" and </tool_call> end < a\\\\\\n\\n\"}"}}});
}

TEST(ToolCallFormats, ReadsHarmonyCalls) {
  expect("gpt-oss",
         "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Zürich\"}<|call|>",
         {"", {{"get_weather", "{\"city\": \"Zürich\"}"}}});
  // Uses the template's form: the recipient comes before the channel, and there is no end tag.
  expect("openai", " to=functions.get_weather<|channel|>commentary json<|message|>{\"days\": 2}",
         {"", {{"get_weather", "{\"days\": 2}"}}});
  expect("gpt-oss",
         "Both.<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
         "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|> {\"city\": \"<|call|>\"}"
         "<|end|>",
         {"Both.", {{"now", "{}"}, {"get_weather", "{\"city\": \"<|call|>\"}"}}});
  // Calls a function without arguments, with and without an end tag.
  expect("gpt-oss", "<|channel|>commentary to=functions.now<|message|><|call|>", {"", {{"now", "{}"}}});
  expect("gpt-oss", "<|channel|>commentary to=functions.now<|message|>", {"", {{"now", "{}"}}});
  for (const char* text : {"<|channel|>commentary to=functions.drop <|constrain|>json<|message|>{}<|call|>",
                           "<|channel|>commentary to=functions.drop<|message|><|call|>",
                           "<|channel|>commentary to=functions.drop<|message|>", "<|channel|>final<|message|>Hi.",
                           "<|channel|>commentary to=functions.now<|message|>now()<|call|>",
                           "<|channel|>commentary to=functions.now<|message|><|x", "to be or not",
                           "<|start|>user<|message|>x", "<|channel|>", "to=functions.now"}) {
    expect_content("gpt-oss", text);
  }
}

TEST(ToolCallFormats, ReadsMistralCallsWithNames) {
  expect("mistral", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Nîmes\"}[TOOL_CALLS]now[ARGS]{}",
         {"", {{"get_weather", "{\"city\": \"Nîmes\"}"}, {"now", "{}"}}});
  expect("mistral", "Look: [TOOL_CALLS]now[CALL_ID]a1B2c3D4e[ARGS]{}", {"Look:", {{"now", "{}"}}});
  expect("mistral", "[TOOL_CALLS]now{}\nok", {"\nok", {{"now", "{}"}}});
  expect("mistral", "[TOOL_CALLS]drop[ARGS][TOOL_CALLS]now[ARGS]{}", {"[TOOL_CALLS]drop[ARGS]", {{"now", "{}"}}});
  for (const char* text : {"[TOOL_CALLS]drop[ARGS]{}", "[TOOL_CALLS]now[ARGS]", "[TOOL_CALLS]now[ARGS][]",
                           "[TOOL_CALLS] is a tag", "[TOOL_CALLS]now[CALL_ID]a{}", "[TOOL_CALLS]{}"}) {
    expect_content("mistral", text);
  }
}

TEST(ToolCallFormats, ReadsDsmlCalls) {
  expect("deepseekv32",
         "Two.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
         "<｜DSML｜parameter name=\"city\" string=\"true\">A \"b\"\n</｜DSML｜parameter>\n"
         "<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n"
         "<｜DSML｜parameter name=\"tags\" string=\"false\">[\"x\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
         "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         {"Two.", {{"get_weather", "{\"city\": \"A \\\"b\\\"\\n\", \"days\": 3, \"tags\": [\"x\"]}"}, {"now", "{}"}}});
  expect_content(
      "deepseek_v32",
      "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"drop\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>");
}

TEST(ToolCallFormats, TextThatIsNoCallIsContent) {
  for (const char* text :
       {"<tool_call>", "<tool_call>\n<function=", "<function=>\n</function>", "<function=now>",
        "<function=now>x</function>",
        "<tool_call>\n<function=drop>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", "<function=now>\n<parameter=a",
        "a <function> b", "<function=now>\n<parameter=>\n</parameter>\n</function>", "</tool_call>",
        "<tool_call><tool_call>"}) {
    expect_content("qwen3_coder", text);
  }
  for (const char* text :
       {"<tool_call></tool_call>", "<tool_call>drop\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "<tool_call>now", "<tool_call>now\n<arg_key>a", "<tool_call>now\n<arg_key>a</arg_key>\n</tool_call>",
        "<tool_call>now and then</tool_call>", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        "<tool_call>now<b>"}) {
    expect_content("glm45", text);
  }
  // A valid call follows text that is not a call.
  expect("qwen3_coder", "<function=no<function=now></function>", {"<function=no", {{"now", "{}"}}});
  expect("glm45", "<tool_call><tool_call>now</tool_call>", {"<tool_call>", {{"now", "{}"}}});
}

TEST(ToolCallFormats, UnfinishedCallsKeepTheirText) {
  const std::string begin = "<tool_call>\n<function=write_file>\n<parameter=path>\n";
  expect("qwen3_coder", begin, {"", {{"write_file", "{\"path\": \""}}});
  expect("qwen3_coder", begin + "a\n</para", {"", {{"write_file", "{\"path\": \"a\\n</para"}}});
  expect("qwen3_coder", begin + "a\n</parameter>\n", {"", {{"write_file", "{\"path\": \"a\""}}});
  expect("qwen3_coder", begin + "a\n</parameter>\n</function>\n</tool_", {"", {{"write_file", "{\"path\": \"a\"}"}}});
  expect("glm45", "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>12",
         {"", {{"get_weather", "{\"days\": 12"}}});
  expect("glm45", "<tool_call>get_weather\n<arg_key>at</arg_key>\n<arg_value>nu",
         {"", {{"get_weather", "{\"at\": \"nu"}}});
  expect("gpt-oss", "<|channel|>commentary to=functions.now<|message|>{\"a\": \"b", {"", {{"now", "{\"a\": \"b"}}});
}

TEST(ToolCallFormats, StringsArePassedOnAsTheyArrive) {
  ToolCallParser parser = *ToolCallParser::create("qwen3_coder", tools(), [] { return "id"; });
  EXPECT_THAT(parser.push("<tool_call>\n<function=write_file>\n<parameter=pa").calls, IsEmpty());
  const ToolText begun = parser.push("th>\na");
  ASSERT_THAT(begun.calls, SizeIs(1));
  EXPECT_EQ(begun.calls[0].name, "write_file");
  EXPECT_EQ(begun.calls[0].arguments, "{\"path\": \"a");
  EXPECT_EQ(parser.push("\"b\n").calls.at(0).arguments, "\\\"b");
  EXPECT_EQ(parser.push("c <").calls.at(0).arguments, "\\nc ");
  EXPECT_EQ(parser.push("/p").calls.size(), 0u);
  EXPECT_EQ(parser.push(">").calls.at(0).arguments, "</p>");
  // The parameter is a string that may be null, so the parser holds back the value until a letter does not fit "null".
  EXPECT_THAT(parser.push("\n</parameter>\n</function>\n</tool_call>\n<function=get_weather><parameter=at>nu").calls,
              SizeIs(2));
  EXPECT_EQ(parser.push("t").calls.at(0).arguments, "\"nut");
  EXPECT_EQ(parser.push("s").calls.at(0).arguments, "s");
}

// Changes recorded texts: removes, doubles, exchanges and inserts bytes.
TEST(ToolCallFormats, MutationsLoseNoText) {
  const std::pair<std::string_view, std::string> recorded[] = {
      {"qwen3_coder",
       "Hi "
       "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
       "</function>\n</tool_call>"},
      {"glm45",
       "Hi <tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
       "<arg_value>3</arg_value>\n</tool_call>"},
      {"gpt-oss",
       "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": "
       "\"Oslo\"}<|call|><|start|>assistant to=functions.now<|channel|>commentary<|message|>{}"},
      {"mistral", "Hi [TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]now[ARGS]{}"},
      {"deepseekv32",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
       "string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
  };
  std::mt19937 random(3);
  int kept = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto& [name, original] = recorded[random() % std::size(recorded)];
    std::string text = original;
    for (auto i = 1 + random() % 3; i > 0; --i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text.erase(at, 1 + random() % 4); break;
        case 1: text.insert(at, text.substr(random() % text.size(), random() % 20)); break;
        case 2: text[at] = "<>{}[]\"\\\n x"[random() % 11]; break;
        default: std::swap(text[at], text[random() % text.size()]); break;
      }
    }
    const Parsed expected = parse_calls(name, tools(), text, [&] { return text.size(); });
    ASSERT_EQ(parse_calls(name, tools(), text, [] { return std::size_t{1}; }), expected) << name << ": " << text;
    ASSERT_EQ(parse_calls(name, tools(), text, [&] { return 1 + random() % 9; }), expected) << name << ": " << text;
    if (expected.calls.empty()) {
      ASSERT_EQ(expected.content, text) << name;
    } else {
      ++kept;
    }
    // The word "Oslo" is no part of a tag or a name, so it must appear in the content or the arguments.
    std::string all = expected.content;
    for (const Call& call : expected.calls) all += call.arguments;
    if (text.find("Oslo") != std::string::npos) {
      ASSERT_NE(all.find("Oslo"), std::string::npos) << name << ": " << text;
    }
  }
  EXPECT_GT(kept, 5000);
}

}  // namespace
}  // namespace tessera
