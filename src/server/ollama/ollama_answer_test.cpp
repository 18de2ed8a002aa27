// Catches: lines that Ollama's clients cannot read; streams whose text differs from the text of the unstreamed answer;
// tool calls that are sent although they were cut off; and times in a wrong unit.
#include "tessera/server/ollama/ollama_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

OllamaStyle ollama_style() { return {.model = "demo", .tokenizer = &test::demo_tokenizer()}; }

OllamaStyle with_tools(OllamaStyle style) {
  style.text.choice = ToolChoice::kAuto;
  style.text.tool_call_parser = "hermes";
  style.text.reasoning_parser = "qwen3";
  style.text.tools = *Json::parse(R"([{"type": "function", "function": {"name": "f"}}])", "tools");
  return style;
}

struct Said {
  std::vector<Json> lines;
  Json last() const { return lines.back(); }
  std::string joined(const char* member) const {
    std::string all;
    for (const Json& line : lines) {
      const Json* message = line.find("message");
      const Json* text = (message != nullptr ? message : &line)->find(member);
      if (text != nullptr) all += text->as_string();
    }
    return all;
  }
};

// Gives the texts to an answer, one token each, and returns what the answer sends.
Said say(const OllamaStyle& style, const std::vector<std::string>& texts, FinishReason finish = FinishReason::kStop) {
  const std::unique_ptr<Answer> answer = make_ollama_answer(style);
  std::string stream;
  Completion end{.prompt_tokens = 5, .queue_ms = 1, .time_to_first_token_ms = 3, .total_ms = 10};
  for (const std::string& text : texts) {
    RequestEvent event{.token = TokenId(7), .text = text};
    if (style.logprobs) event.logprobs = TokenLogprobs{.token = {TokenId(7), -0.5F}, .top = {{TokenId(9), -1.5F}}};
    answer->on_event(0, event, nullptr, stream);
    end.output_ids.emplace_back(7);
  }
  answer->on_event(0, {.finish = finish}, &end, stream);
  stream += style.stream ? answer->last_events() + answer->stream_end() : answer->body() + "\n";
  Said said;
  std::istringstream lines(stream);
  for (std::string line; std::getline(lines, line);) said.lines.push_back(*Json::parse(line, "line"));
  return said;
}

TEST(OllamaAnswer, AStreamIsLinesThatEndWithTheCounts) {
  const Said said = say(ollama_style(), {"a", "b", "c"});
  ASSERT_EQ(said.lines.size(), 4u);
  EXPECT_EQ(said.joined("content"), "abc");
  for (const Json& line : said.lines) {
    EXPECT_EQ(line.find("model")->as_string(), "demo");
    EXPECT_EQ(line.find("message")->find("role")->as_string(), "assistant");
    EXPECT_EQ(line.find("done")->as_bool(), &line == &said.lines.back());
  }
  const Json last = said.last();
  EXPECT_EQ(last.find("done_reason")->as_string(), "stop");
  EXPECT_EQ(last.find("prompt_eval_count")->as_int(), 5);
  EXPECT_EQ(last.find("eval_count")->as_int(), 3);
  EXPECT_EQ(last.find("total_duration")->as_int(), 10'000'000);
  EXPECT_EQ(last.find("prompt_eval_duration")->as_int(), 2'000'000);
  EXPECT_EQ(last.find("eval_duration")->as_int(), 7'000'000);
}

TEST(OllamaAnswer, WithoutAStreamOneObjectHasAll) {
  OllamaStyle style = ollama_style();
  style.stream = false;
  style.chat = false;
  const Said said = say(style, {"a", "b"}, FinishReason::kLength);
  ASSERT_EQ(said.lines.size(), 1u);
  EXPECT_EQ(said.last().find("response")->as_string(), "ab");
  EXPECT_EQ(said.last().find("message"), nullptr);
  EXPECT_EQ(said.last().find("done_reason")->as_string(), "length");
}

TEST(OllamaAnswer, ThinkingAndWholeCallsHaveTheirMembers) {
  const std::vector<std::string> texts = {
      "<think>why",       "</think>", "Well.", "<tool_call>\n{\"name\": \"f\", ", "\"arguments\": {\"x\": ",
      "5}}\n</tool_call>"};
  for (const bool stream : {true, false}) {
    OllamaStyle style = with_tools(ollama_style());
    style.stream = stream;
    const Said said = say(style, texts);
    EXPECT_EQ(said.joined("thinking"), "why");
    EXPECT_EQ(said.joined("content"), "Well.");
    std::vector<std::string> calls;
    for (const Json& line : said.lines) {
      const Json* list = line.find("message")->find("tool_calls");
      if (list == nullptr) continue;
      for (const Json& call : list->as_array()) calls.push_back(call.find("function")->dump());
    }
    EXPECT_THAT(calls, ElementsAre(R"({"index": 0, "name": "f", "arguments": {"x": 5}})"));
  }
}

TEST(OllamaAnswer, ACallThatWasCutOffIsLeftOut) {
  const Said said = say(with_tools(ollama_style()), {"<tool_call>\n{\"name\": \"f\", ", "\"arguments\": {\"x\": "},
                        FinishReason::kLength);
  for (const Json& line : said.lines) EXPECT_EQ(line.find("message")->find("tool_calls"), nullptr);
  EXPECT_EQ(said.joined("content"), "");
}

TEST(OllamaAnswer, LogProbabilitiesComeWithTheirTokens) {
  OllamaStyle style = ollama_style();
  style.logprobs = true;
  const Said said = say(style, {"a", "b"});
  const Json::Array first = said.lines[0].find("logprobs")->as_array();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].find("logprob")->as_double(), -0.5);
  EXPECT_EQ(first[0].find("top_logprobs")->as_array()[0].find("logprob")->as_double(), -1.5);
  EXPECT_EQ(said.last().find("logprobs"), nullptr);
  style.stream = false;
  EXPECT_EQ(say(style, {"a", "b"}).last().find("logprobs")->as_array().size(), 2u);
}

TEST(OllamaAnswer, FewerLinesHaveTheSameText) {
  OllamaStyle style = ollama_style();
  style.interval = 3;
  const Said said = say(style, {"a", "b", "c", "d", "e"});
  EXPECT_EQ(said.joined("content"), "abcde");
  EXPECT_EQ(said.lines.size(), 4u) << "after tokens 1 and 3, at the end, and the counts";
}

TEST(OllamaAnswer, AFailureIsALineOfItsOwn) {
  const std::unique_ptr<Answer> answer = make_ollama_answer(ollama_style());
  EXPECT_EQ(answer->stream_type(), "application/x-ndjson");
  EXPECT_EQ(answer->stream_failure({.message = "late", .param = {}, .code = {}}), "{\"error\": \"late\"}\n");
}

}  // namespace
}  // namespace tessera
