// Catches: messages of gpt-oss that are assigned to the wrong channel; message headers that are shown to the user; tool
// calls that do not reach the parser of tool calls; text that is lost; and results that depend on where the deltas of a
// stream end.
#include "tessera/server/reasoning/harmony_reasoning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/server/tools/tool_call_test_util.h"

namespace tessera {
namespace {

struct Turn {
  std::string reasoning{};
  Parsed parsed{};
  bool operator==(const Turn&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Turn& turn) {
  return out << '{' << turn.reasoning << '}' << turn.parsed;
}

const Json& harmony_tools() {
  static const Json kTools = *Json::parse(R"([{"function": {"name": "get"}}, {"function": {"name": "now"}}])", "tools");
  return kTools;
}

// Splits a text into reasoning, content and calls, as the server splits a chat's answer. The text arrives in pieces,
// and cut() returns the length of the next piece in bytes.
template <class Cut>
Turn read(std::string_view text, Cut cut, bool inside = false) {
  HarmonyReasoning reasoning(inside);
  int calls = 0;
  ToolCallParser parser =
      *ToolCallParser::create("gpt-oss", harmony_tools(), [&] { return "id" + std::to_string(calls++); });
  Turn turn;
  const auto take = [&](const ReasoningText& part) {
    turn.reasoning += part.reasoning;
    add_deltas(parser.push(part.content), turn.parsed);
  };
  while (!text.empty()) {
    const std::size_t length = std::min<std::size_t>(text.size(), cut());
    take(reasoning.push(text.substr(0, length)));
    text.remove_prefix(length);
  }
  take(reasoning.finish());
  add_deltas(parser.finish(), turn.parsed);
  return turn;
}

void expect(std::string_view text, const Turn& expected, bool inside = false) {
  EXPECT_EQ(read(
                text, [&] { return text.size(); }, inside),
            expected)
      << text;
  EXPECT_EQ(read(
                text, [] { return std::size_t{1}; }, inside),
            expected)
      << text;
  for (std::size_t at = 1; at < text.size(); ++at) {
    std::size_t length = at;
    ASSERT_EQ(read(
                  text, [&] { return std::exchange(length, text.size()); }, inside),
              expected)
        << at << ": " << text;
  }
}

TEST(HarmonyReasoning, SplitsChannelsAndDropsHeaders) {
  expect(
      "<|channel|>analysis<|message|>Simple sum.<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = "
      "4.<|return|>",
      {"Simple sum.", {"2 + 2 = 4.", {}}});
  expect("<|channel|>final<|message|>Hi.", {"", {"Hi.", {}}});
  // Tests several messages of one channel, without end tags.
  expect(
      "<|channel|>analysis<|message|> One. <|end|><|start|>assistant<|channel|>analysis<|message|>Two."
      "<|start|>assistant<|channel|>commentary<|message|>I "
      "look.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
      {"One.\nTwo.", {"I look.\nYes.", {}}});
  expect("<|channel|>analysis<|message|>never done\n", {"never done", {}});
  expect("still here.<|end|><|start|>assistant<|channel|>final<|message|>So.", {"still here.", {"So.", {}}},
         /*inside=*/true);
  // Tests an answer whose beginning is already in the prompt.
  expect(" to be or not.", {"", {" to be or not.", {}}});
  expect("", {});
}

TEST(HarmonyReasoning, CallsReachTheirParser) {
  expect(
      "<|channel|>analysis<|message|>Need it.<|end|><|start|>assistant<|channel|>commentary<|message|>I look it up."
      "<|end|><|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"a\": \"é\"}"
      "<|call|>",
      {"Need it.", {"I look it up.", {{"get", "{\"a\": \"é\"}"}}}});
  expect(" to=functions.now<|channel|>commentary json<|message|>{}", {"", {"", {{"now", "{}"}}}});
  // Tests two calls, the first without an end tag, and the answer.
  expect(
      "<|channel|>commentary to=functions.now<|message|>{}<|start|>assistant to=functions.get<|channel|>commentary"
      "<|message|>{\"a\": 1}<|call|><|start|>assistant<|channel|>final<|message|>Done.",
      {"", {"Done.", {{"now", "{}"}, {"get", "{\"a\": 1}"}}}});
  const std::string unknown = "<|channel|>commentary to=functions.drop <|constrain|>json<|message|>{}<|call|>";
  expect(unknown, {"", {unknown, {}}});
  // Tests a call of one of OpenAI's built-in tools inside the reasoning.
  expect("<|channel|>analysis to=python code<|message|>print(1)<|end|>", {"print(1)", {}});
}

TEST(HarmonyReasoning, TextThatIsNoHeaderIsContent) {
  expect("<|channel|>final, he said<|message|>x", {"", {"<|channel|>final, he said<|message|>x", {}}});
  expect("<|channel|>a<|channel|>b<|message|>x", {"", {"<|channel|>a<|channel|>b<|message|>x", {}}});
  expect("<|channel|>analysis", {"", {"<|channel|>analysis", {}}});
  expect("t<|message|>x", {"", {"t<|message|>x", {}}});
  expect("<|start|>assistant<|end|>x", {"", {"<|start|>assistant\nx", {}}});
  expect("<|constrain|>a<|chan", {"", {"<|constrain|>a<|chan", {}}});
}

TEST(HarmonyReasoning, UnambiguousTextIsSentAtOnce) {
  HarmonyReasoning parser(false);
  EXPECT_EQ(parser.push("<|channel|>analysis<|message|>ab").reasoning, "ab");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(parser.push(" <").reasoning, "");
  EXPECT_EQ(parser.push("c<|end|>").reasoning, " <c");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(parser.push("<|start|>assistant<|channel|>final<|message|>d ").content, "d ");
}

TEST(HarmonyReasoning, ResultsDoNotDependOnTheCuts) {
  constexpr const char* kWords[] = {"<|start|>assistant",
                                    "<|channel|>analysis",
                                    "<|channel|>final",
                                    "<|message|>",
                                    "<|channel|>commentary to=functions.get",
                                    "<|constrain|>json",
                                    "<|end|>",
                                    "<|call|>",
                                    "<|return|>",
                                    "{\"q\": 1}",
                                    "q!",
                                    " ",
                                    "\n",
                                    "é",
                                    "<|",
                                    " to=functions.now",
                                    "t"};
  std::mt19937 random(6);
  int calls = 0;
  for (int round = 0; round < 40'000; ++round) {
    std::string text;
    for (auto i = random() % 14; i > 0; --i) text += kWords[random() % std::size(kWords)];
    const bool inside = random() % 4 == 0;
    const Turn expected = read(
        text, [&] { return text.size(); }, inside);
    ASSERT_EQ(read(
                  text, [] { return std::size_t{1}; }, inside),
              expected)
        << text;
    ASSERT_EQ(read(
                  text, [&] { return 1 + random() % 9; }, inside),
              expected)
        << text;
    // Checks that only tags, headers and white space are lost.
    std::string all = expected.reasoning + expected.parsed.content;
    for (const Call& call : expected.parsed.calls) all += call.arguments;
    std::string bodies;
    HarmonyReasoning parts(inside);
    ReasoningText part = parts.push(text);
    const ReasoningText rest = parts.finish();
    bodies = part.reasoning + part.content + rest.reasoning + rest.content;
    ASSERT_EQ(std::ranges::count(all, 'q'), std::ranges::count(bodies, 'q')) << text;
    calls += static_cast<int>(expected.parsed.calls.size());
  }
  EXPECT_GT(calls, 500);
}

}  // namespace
}  // namespace tessera
