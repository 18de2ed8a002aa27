// Catches: reasoning that appears in the content; content that becomes reasoning; tags that are shown to the user; text
// that is lost if a delta ends inside a tag; and results that depend on where the deltas end.
#include "tessera/server/reasoning/reasoning_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tessera {
namespace {

struct Parts {
  std::string reasoning;
  std::string content;
  bool operator==(const Parts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  return out << '[' << parts.reasoning << "][" << parts.content << ']';
}

// Parses the text in pieces. cut() returns the length of the next piece in bytes.
template <class Cut>
Parts parse(std::string_view name, bool opened, std::string_view text, Cut cut) {
  Result<ReasoningParser> parser = ReasoningParser::create(name, opened);
  EXPECT_TRUE(parser.ok());
  Parts out;
  const auto add = [&](const ReasoningText& part) {
    out.reasoning += part.reasoning;
    out.content += part.content;
  };
  while (!text.empty()) {
    const std::size_t length = std::min<std::size_t>(text.size(), cut());
    add(parser->push(text.substr(0, length)));
    text.remove_prefix(length);
  }
  add(parser->finish());
  return out;
}

Parts reasoned(std::string_view name, std::string_view text, bool opened = false) {
  return parse(name, opened, text, [&] { return text.size(); });
}

TEST(ReasoningParser, Qwen3NeedsTheTagAtTheTextsBegin) {
  EXPECT_EQ(reasoned("qwen3", "<think>\nadd\n</think>\n\n2"), (Parts{"add", "2"}));
  EXPECT_EQ(reasoned("qwen3", "\n <think>a b</think>2 \n"), (Parts{"a b", "2 \n"}));
  EXPECT_EQ(reasoned("qwen3", "2"), (Parts{"", "2"}));
  EXPECT_EQ(reasoned("qwen3", " \n2"), (Parts{"", " \n2"}));
  EXPECT_EQ(reasoned("qwen3", "The tag <think> and </think>."), (Parts{"", "The tag <think> and </think>."}));
  EXPECT_EQ(reasoned("qwen3", "<think>\n\n</think>\n\n2"), (Parts{"", "2"}));
  EXPECT_EQ(reasoned("qwen3", "</think>2"), (Parts{"", "</think>2"}));
  EXPECT_EQ(reasoned("qwen3", "<thin"), (Parts{"", "<thin"}));
  EXPECT_EQ(reasoned("qwen3", ""), (Parts{"", ""}));
  EXPECT_EQ(reasoned("qwen3", "add</think>2", /*opened=*/true), (Parts{"add", "2"}));
}

TEST(ReasoningParser, DeepseekBeginsInsideEvenWithoutTheTag) {
  EXPECT_EQ(reasoned("deepseek-r1", "add\n</think>\n\n2"), (Parts{"add", "2"}));
  EXPECT_EQ(reasoned("deepseek-r1", "<think>\nadd</think>2"), (Parts{"add", "2"}));
  EXPECT_EQ(reasoned("deepseek-r1", "add, never done \n"), (Parts{"add, never done", ""}));
  EXPECT_EQ(reasoned("deepseek-r1", "a <think> b</think>2"), (Parts{"a <think> b", "2"}));
  EXPECT_EQ(reasoned("deepseek-r1", "a < b </thin"), (Parts{"a < b </thin", ""}));
  EXPECT_EQ(reasoned("deepseek-r1", "a</think>b</think>c"), (Parts{"a", "b</think>c"}));
  EXPECT_EQ(reasoned("deepseek-r1", "</</think>2"), (Parts{"</", "2"}));
}

TEST(ReasoningParser, FamiliesHaveTheirNames) {
  for (const char* name : {"glm45", "glm47", "deepseek-v3", "deepseek_v3"}) {
    EXPECT_EQ(reasoned(name, "\n<think>add</think>\n2"), (Parts{"add", "2"})) << name;
    EXPECT_EQ(reasoned(name, "2"), (Parts{"", "2"})) << name;
    EXPECT_EQ(reasoned(name, "add</think>2", /*opened=*/true), (Parts{"add", "2"})) << name;
  }
  EXPECT_EQ(reasoned("qwen3-thinking", "add\n</think>\n\n2"), (Parts{"add", "2"}));
  EXPECT_EQ(reasoned("mistral", "[THINK]a [THINK]b[/THINK]\n2"), (Parts{"a [THINK]b", "2"}));
  EXPECT_EQ(reasoned("mistral", "<think>a</think>"), (Parts{"", "<think>a</think>"}));
  for (const char* name : {"gpt-oss", "openai_gptoss"})
    EXPECT_EQ(reasoned(name, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>2"),
              (Parts{"a", "2"}));
}

TEST(ReasoningParser, TellsWhetherThePromptIsInsideTheReasoning) {
  EXPECT_TRUE(opens_reasoning("user\n<think>\n"));
  EXPECT_TRUE(opens_reasoning("<|start|>assistant<|channel|>analysis<|message|>"));
  EXPECT_FALSE(opens_reasoning("<think></think>"));
  EXPECT_FALSE(opens_reasoning(""));
  EXPECT_TRUE(is_inside_reasoning("[THINK]a"));
  EXPECT_FALSE(is_inside_reasoning("<think>a</think>b"));
  EXPECT_TRUE(closes_reasoning("<think>a</think>b"));
  EXPECT_FALSE(closes_reasoning("b"));
  EXPECT_TRUE(reads_special_tokens("gpt-oss"));
  EXPECT_TRUE(reads_special_tokens("mistral"));
  EXPECT_FALSE(reads_special_tokens("qwen3"));
  EXPECT_FALSE(reads_special_tokens(""));
}

TEST(ReasoningParser, WithNoneAllTextIsContent) {
  EXPECT_EQ(reasoned("none", "<think>a</think> b"), (Parts{"", "<think>a</think> b"}));
}

TEST(ReasoningParser, ResultsDoNotDependOnTheCuts) {
  constexpr const char* kWords[] = {"<think>", "</think>", "<",   "</",     "think",  ">",       " ",
                                    "\n",      "ab",       "é世", "<think", "</thin", "[THINK]", "[/THINK]"};
  std::mt19937 random(6);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto i = random() % 10; i > 0; --i) text += kWords[random() % std::size(kWords)];
    const std::string_view name = reasoning_parser_names()[random() % reasoning_parser_names().size()];
    const bool opened = random() % 2 == 0;
    const Parts expected = reasoned(name, text, opened);
    ASSERT_EQ(parse(name, opened, text, [] { return 1; }), expected) << name << ' ' << text;
    ASSERT_EQ(parse(name, opened, text, [&] { return 1 + random() % 9; }), expected) << name << ' ' << text;
    // Checks that only tags and white space are lost.
    const auto letters = [](std::string_view s) {
      return std::count_if(s.begin(), s.end(), [](char c) { return c == 'a' || c == 'b'; });
    };
    ASSERT_EQ(letters(expected.reasoning) + letters(expected.content), letters(text)) << text;
  }
}

TEST(ReasoningParser, UnambiguousTextIsSentAtOnce) {
  ReasoningParser parser = *ReasoningParser::create("qwen3", false);
  EXPECT_EQ(parser.push("<think>ab").reasoning, "ab");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(parser.push(" </").reasoning, "");
  EXPECT_EQ(parser.push("x").reasoning, " </x");
  EXPECT_EQ(parser.push("</think>").reasoning, "");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(parser.push("\nc").content, "c");
}

TEST(ReasoningParser, NamesAreAcceptedAndTemplatesGuessed) {
  EXPECT_THAT(ReasoningParser::create("qwen", false).status().message(),
              ::testing::HasSubstr("reasoning parser \"qwen\"; accepted: deepseek-r1, deepseek_r1, deepseek-v3, "));
  EXPECT_EQ(guess_reasoning_parser("{{ x.split('</think>')[-1] }}"), "qwen3");
  EXPECT_EQ(guess_reasoning_parser("{{ x }}"), "");
}

TEST(ReasoningParser, NamesItsMarks) {
  EXPECT_EQ(reasoning_marks("qwen3").closing, "</think>");
  EXPECT_EQ(reasoning_marks("mistral").closing, "[/THINK]");
  EXPECT_EQ(reasoning_marks("gpt-oss").opening, "<|channel|>analysis<|message|>");
  EXPECT_TRUE(repeats_reasoning("gpt-oss"));
  EXPECT_FALSE(repeats_reasoning("qwen3"));
  EXPECT_TRUE(begins_in_reasoning("deepseek-r1"));
  EXPECT_FALSE(begins_in_reasoning("qwen3"));
  for (const char* name : {"none", "", "unknown"}) EXPECT_EQ(reasoning_marks(name).closing, "") << name;
}

}  // namespace
}  // namespace tessera
