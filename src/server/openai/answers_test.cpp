// Catches: answers in a form that clients do not know; streams that lose or repeat text; log-probabilities of the wrong
// tokens; and wrong token counts in the usage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/openai/answers_test_util.h"
#include "tessera/server/openai/token_text.h"

namespace tessera {
namespace {

using test::at;
using test::chat_style;
using test::completion_style;
using test::demo_tokenizer;
using test::end_of;
using test::events;
using test::generate_style;
using test::last;
using test::on_event;
using test::parsed;
using test::step;
using test::token;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CompletionAnswer, HasOneObjectWithAllChoices) {
  CompletionStyle style = completion_style(false);
  style.n = 2;
  const auto answer = make_completion_answer(style);
  Completion end = end_of(2, 7, 3);
  EXPECT_EQ(on_event(*answer, 0, step("a"), nullptr), "");
  on_event(*answer, 1, step("x"), nullptr);
  on_event(*answer, 0, last("b", FinishReason::kStop), &end);
  on_event(*answer, 1, last("\"\n", FinishReason::kLength), &end);
  const Json body = parsed(answer->body());
  EXPECT_EQ(at(body, "id"), Json("cmpl-1"));
  EXPECT_EQ(at(body, "object"), Json("text_completion"));
  EXPECT_EQ(at(body, "choices.0.text"), Json("ab"));
  EXPECT_EQ(at(body, "choices.0.finish_reason"), Json("stop"));
  EXPECT_EQ(at(body, "choices.0.logprobs"), Json());
  EXPECT_EQ(at(body, "choices.1.text"), Json("x\"\n"));
  EXPECT_EQ(at(body, "choices.1.finish_reason"), Json("length"));
  EXPECT_EQ(at(body, "choices.1.index"), Json(1));
  EXPECT_EQ(at(body, "usage.prompt_tokens"), Json(7));
  EXPECT_EQ(at(body, "usage.completion_tokens"), Json(4));
  EXPECT_EQ(at(body, "usage.total_tokens"), Json(11));
  EXPECT_EQ(at(body, "usage.prompt_tokens_details.cached_tokens"), Json(3));
}

TEST(CompletionAnswer, StreamsEachPieceOnce) {
  CompletionStyle style = completion_style(true);
  style.stream.include_usage = true;
  style.echo = {"P"};
  const auto answer = make_completion_answer(style);
  Completion end = end_of(3, 7, 0);
  std::string stream = on_event(*answer, 0, step("a"), nullptr);
  EXPECT_EQ(on_event(*answer, 0, step(""), nullptr), "");  // the token is only a part of a character
  stream += on_event(*answer, 0, step("é"), nullptr);
  stream += on_event(*answer, 0, last("!", FinishReason::kLength), &end);
  stream += answer->last_events();
  const std::vector<Json> chunks = events(stream);
  ASSERT_THAT(chunks, SizeIs(4));
  EXPECT_EQ(at(chunks[0], "choices.0.text"), Json("Pa"));
  EXPECT_EQ(at(chunks[0], "choices.0.finish_reason"), Json());
  EXPECT_EQ(at(chunks[0], "usage"), Json());
  EXPECT_EQ(at(chunks[1], "choices.0.text"), Json("é"));
  EXPECT_EQ(at(chunks[2], "choices.0.text"), Json("!"));
  EXPECT_EQ(at(chunks[2], "choices.0.finish_reason"), Json("length"));
  EXPECT_THAT(at(chunks[3], "choices").as_array(), IsEmpty());
  EXPECT_EQ(at(chunks[3], "usage.completion_tokens"), Json(3));
}

TEST(CompletionAnswer, LogprobsOfEchoAndOutputAreColumns) {
  CompletionStyle style = completion_style(false);
  style.logprobs = style.echo_logprobs = true;
  style.echo = {"Once"};
  style.prompt_tokens = {1};
  const auto answer = make_completion_answer(style);
  const TokenId a = token("a");
  const TokenId b = token("b");
  Completion end = end_of(1, 1, 0);
  end.prompt_logprobs = {{.token = {a, std::numeric_limits<float>::quiet_NaN()}}};
  end.output_logprobs = {{.token = {b, -0.25f}, .top = {{a, -0.125f}}}};
  on_event(*answer, 0, last("b", FinishReason::kLength), &end);
  const Json logprobs = at(parsed(answer->body()), "choices.0.logprobs");
  EXPECT_EQ(at(logprobs, "tokens").dump(), R"(["a", "b"])");
  EXPECT_EQ(at(logprobs, "token_logprobs").dump(), "[null, -0.25]");
  EXPECT_EQ(at(logprobs, "top_logprobs").dump(), R"([null, {"a": -0.125, "b": -0.25}])");
  EXPECT_EQ(at(logprobs, "text_offset").dump(), "[0, 1]");
}

TEST(ChatAnswer, IsOneObject) {
  ChatStyle style = chat_style(false);
  style.logprobs = true;
  const auto answer = make_chat_answer(style);
  Completion end = end_of(1, 5, 4);
  on_event(*answer, 0, step("a", token("a"), true), nullptr);
  on_event(*answer, 0, last("", FinishReason::kStop), &end);
  const Json body = parsed(answer->body());
  EXPECT_EQ(at(body, "object"), Json("chat.completion"));
  EXPECT_EQ(at(body, "choices.0.message.role"), Json("assistant"));
  EXPECT_EQ(at(body, "choices.0.message.content"), Json("a"));
  EXPECT_EQ(at(body, "choices.0.message.refusal"), Json());
  EXPECT_EQ(at(body, "choices.0.finish_reason"), Json("stop"));
  EXPECT_EQ(at(body, "choices.0.logprobs.content.0.token"), Json("a"));
  EXPECT_EQ(at(body, "choices.0.logprobs.content.0.logprob"), Json(-0.5));
  EXPECT_EQ(at(body, "choices.0.logprobs.content.0.bytes").dump(), "[97]");
  EXPECT_THAT(at(body, "choices.0.logprobs.content.0.top_logprobs").as_array(), SizeIs(2));
  EXPECT_EQ(at(body, "usage.prompt_tokens_details.cached_tokens"), Json(4));
  EXPECT_EQ(at(body, "usage.completion_tokens_details.reasoning_tokens"), Json(0));
}

TEST(ChatAnswer, AStreamBeginsWithRoleAndEndsWithReason) {
  ChatStyle style = chat_style(true);
  style.logprobs = true;
  style.stream.continuous_usage_stats = true;
  const auto answer = make_chat_answer(style);
  Completion end = end_of(2, 5, 4);
  std::string stream = on_event(*answer, 0, step("", token("a"), true), nullptr);
  stream += on_event(*answer, 0, step("ab", token("b"), true), nullptr);
  stream += on_event(*answer, 0, last("", FinishReason::kLength), &end);
  const std::vector<Json> chunks = events(stream);
  ASSERT_THAT(chunks, SizeIs(3));
  EXPECT_EQ(at(chunks[0], "object"), Json("chat.completion.chunk"));
  EXPECT_EQ(at(chunks[0], "choices.0.delta").dump(), R"({"role": "assistant", "content": ""})");
  EXPECT_EQ(at(chunks[1], "choices.0.delta").dump(), R"({"content": "ab"})");
  EXPECT_EQ(at(chunks[1], "choices.0.finish_reason"), Json());
  EXPECT_EQ(at(chunks[1], "usage.completion_tokens"), Json(2));
  // The chunk has the log-probabilities of both tokens, because the first token had no text to send.
  EXPECT_THAT(at(chunks[1], "choices.0.logprobs.content").as_array(), SizeIs(2));
  EXPECT_EQ(at(chunks[2], "choices.0.delta").dump(), "{}");
  EXPECT_EQ(at(chunks[2], "choices.0.finish_reason"), Json("length"));
  EXPECT_THAT(answer->last_events(), IsEmpty());
}

TEST(ChatAnswer, TextOfANamedCallIsItsArguments) {
  ChatStyle style = chat_style(true);
  style.text.choice = ToolChoice::kNamed;
  style.text.named = "f";
  const auto answer = make_chat_answer(style);
  Completion end = end_of(2, 5, 0);
  std::string stream = on_event(*answer, 0, step("{\"x\":"), nullptr);
  stream += on_event(*answer, 0, step("1}"), nullptr);
  stream += on_event(*answer, 0, last("", FinishReason::kStop), &end);
  const std::vector<Json> chunks = events(stream);
  ASSERT_THAT(chunks, SizeIs(4));
  const Json first = at(chunks[1], "choices.0.delta.tool_calls.0");
  EXPECT_EQ(at(first, "index"), Json(0));
  EXPECT_EQ(at(first, "function.name"), Json("f"));
  EXPECT_EQ(at(first, "function.arguments"), Json("{\"x\":"));
  EXPECT_EQ(at(chunks[2], "choices.0.delta.tool_calls.0").dump(), R"({"index": 0, "function": {"arguments": "1}"}})");
  EXPECT_EQ(at(chunks[3], "choices.0.finish_reason"), Json("tool_calls"));
}

TEST(ChatAnswer, RequiredCallsAreTakenFromTheList) {
  ChatStyle style = chat_style(false);
  style.text.choice = ToolChoice::kRequired;
  const auto answer = make_chat_answer(style);
  Completion end = end_of(9, 5, 0);
  // Sends every byte as a token of its own. The brackets inside the strings must not end a call.
  const std::string text = R"([{"name": "f", "parameters": {"x": "}]\""}}, {"name": "g", "parameters": {}}])";
  for (const char c : text) on_event(*answer, 0, step(std::string(1, c).c_str()), nullptr);
  on_event(*answer, 0, last("", FinishReason::kStop), &end);
  const Json message = at(parsed(answer->body()), "choices.0.message");
  EXPECT_EQ(at(message, "content"), Json());
  ASSERT_THAT(at(message, "tool_calls").as_array(), SizeIs(2));
  EXPECT_EQ(at(message, "tool_calls.0.function.name"), Json("f"));
  EXPECT_EQ(at(message, "tool_calls.0.function.arguments"), Json(R"({"x": "}]\""})"));
  EXPECT_EQ(at(message, "tool_calls.1.function.name"), Json("g"));
  EXPECT_NE(at(message, "tool_calls.0.id"), at(message, "tool_calls.1.id"));
}

TEST(ChatAnswer, RequiredCallsStreamAsTheirArgumentsGrow) {
  ChatStyle style = chat_style(true);
  style.text.choice = ToolChoice::kRequired;
  const auto answer = make_chat_answer(style);
  std::vector<std::string> calls;
  for (const char* text :
       {"[{\"name\": \"f\", \"para", "meters\": {\"x\":", " 1", "}}, {\"name\": \"g\", ", "\"parameters\": {}}", "]"}) {
    for (const Json& chunk : events(on_event(*answer, 0, step(text), nullptr))) {
      const Json& delta = *chunk.find("choices")->as_array()[0].find("delta");
      const Json* list = delta.find("tool_calls");
      if (list == nullptr) continue;
      for (const Json& call : list->as_array()) {
        const Json* name = call.find("function")->find("name");
        calls.push_back((name != nullptr ? name->as_string() + " " : "") +
                        call.find("function")->find("arguments")->as_string());
      }
    }
  }
  EXPECT_THAT(calls, ElementsAre("f {\"x\":", " 1", "}", "g {}"));
}

TEST(ChatAnswer, MessagesOfGptOssAreSeparated) {
  ChatStyle style = chat_style(/*stream=*/false);
  style.text.choice = ToolChoice::kAuto;
  style.text.tool_call_parser = "gpt-oss";
  style.text.tools = *Json::parse(R"([{"type": "function", "function": {"name": "f"}}])", "tools");
  style.text.reasoning_parser = "gpt-oss";
  const auto answer = make_chat_answer(style);
  Completion end = end_of(5, 5, 0);
  for (const char* text :
       {"<|channel|>analysis<|message|>I wonder", "<|end|>", "<|start|>assistant<|channel|>commentary<|message|>Look:",
        "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\"", ": 1}"}) {
    on_event(*answer, 0, step(text), nullptr);
  }
  on_event(*answer, 0, last("", FinishReason::kStop), &end);
  const Json body = parsed(answer->body());
  EXPECT_EQ(at(body, "choices.0.message.reasoning_content"), Json("I wonder"));
  EXPECT_EQ(at(body, "choices.0.message.content"), Json("Look:"));
  ASSERT_THAT(at(body, "choices.0.message.tool_calls").as_array(), SizeIs(1));
  EXPECT_EQ(at(body, "choices.0.message.tool_calls.0.function.arguments"), Json(R"({"x": 1})"));
  EXPECT_EQ(at(body, "choices.0.finish_reason"), Json("tool_calls"));
}

TEST(ChatAnswer, ReasoningCallsAndContentAreSeparated) {
  for (const bool stream : {false, true}) {
    ChatStyle style = chat_style(stream);
    style.text.choice = ToolChoice::kAuto;
    style.text.tool_call_parser = "hermes";
    style.text.tools = *Json::parse(R"([{"type": "function", "function": {"name": "f"}}])", "tools");
    style.text.parallel = false;
    style.text.reasoning_parser = "qwen3";
    style.text.prompt_opens_reasoning = true;
    const auto answer = make_chat_answer(style);
    Completion end = end_of(5, 5, 0);
    std::string sent;
    for (const char* text :
         {"I wonder", "</think>", "Look:", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>",
          "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"}) {
      sent += on_event(*answer, 0, step(text), nullptr);
    }
    sent += on_event(*answer, 0, last("", FinishReason::kStop), &end);
    if (!stream) {
      const Json body = parsed(answer->body());
      EXPECT_EQ(at(body, "choices.0.message.reasoning_content"), Json("I wonder"));
      EXPECT_EQ(at(body, "choices.0.message.content"), Json("Look:"));
      ASSERT_THAT(at(body, "choices.0.message.tool_calls").as_array(), SizeIs(1));
      EXPECT_EQ(at(body, "choices.0.message.tool_calls.0.type"), Json("function"));
      EXPECT_EQ(at(body, "choices.0.message.tool_calls.0.function.arguments"), Json(R"({"x": 1})"));
      EXPECT_EQ(at(body, "choices.0.finish_reason"), Json("tool_calls"));
      EXPECT_EQ(at(body, "usage.completion_tokens_details.reasoning_tokens"), Json(2));
      continue;
    }
    std::string reasoning, content, arguments;
    const auto text_at = [](const Json& json, const std::string& key) {
      const Json* value = json.find(key);
      return value == nullptr ? std::string() : value->as_string();
    };
    for (const Json& chunk : events(sent)) {
      const Json delta = at(chunk, "choices.0.delta");
      reasoning += text_at(delta, "reasoning_content");
      content += text_at(delta, "content");
      if (const Json* calls = delta.find("tool_calls")) {
        for (const Json& call : calls->as_array()) arguments += text_at(*call.find("function"), "arguments");
      }
    }
    EXPECT_EQ(reasoning, "I wonder");
    EXPECT_EQ(content, "Look:");
    EXPECT_EQ(arguments, R"({"x": 1})");
  }
}

TEST(GenerateAnswer, StreamsTheWholeTextAgain) {
  const auto answer = make_generate_answer(generate_style(true));
  Completion end = end_of(2, 2, 1);
  end.matched.text = "stop";
  end.total_ms = 1500;
  std::string stream = on_event(*answer, 0, step("a\n", token("a"), true), nullptr);
  stream += on_event(*answer, 0, step("b", token("b"), true), nullptr);
  stream += on_event(*answer, 0, last("", FinishReason::kStop), &end);
  const std::vector<Json> chunks = events(stream);
  ASSERT_THAT(chunks, SizeIs(3));
  EXPECT_EQ(at(chunks[0], "text"), Json("a\n"));
  EXPECT_EQ(at(chunks[0], "meta_info.finish_reason"), Json());
  EXPECT_EQ(at(chunks[1], "text"), Json("a\nb"));
  EXPECT_THAT(at(chunks[1], "output_ids").as_array(), SizeIs(2));
  const Json& info = at(chunks[2], "meta_info");
  EXPECT_EQ(at(info, "id"), Json("r1"));
  EXPECT_EQ(at(info, "finish_reason").dump(), R"({"type": "stop", "matched": "stop"})");
  EXPECT_EQ(at(info, "prompt_tokens"), Json(2));
  EXPECT_EQ(at(info, "completion_tokens"), Json(2));
  EXPECT_EQ(at(info, "cached_tokens"), Json(1));
  EXPECT_EQ(at(info, "e2e_latency"), Json(1.5));
  EXPECT_EQ(at(info, "output_token_logprobs.1.0"), Json(-0.5));
  EXPECT_EQ(at(info, "output_token_logprobs.1.2"), Json("b"));
  EXPECT_EQ(at(info, "input_token_logprobs.0.0"), Json());
  EXPECT_EQ(at(info, "input_token_logprobs.0.2"), Json("a"));
}

TEST(GenerateAnswer, ListHasInputLogprobsAndHiddenStates) {
  GenerateStyle style = generate_style(false);
  style.list = true;
  style.choices[0].input_logprobs = style.choices[0].top_logprobs = style.choices[0].hidden_states = true;
  const auto answer = make_generate_answer(style);
  Completion end = end_of(2, 2, 0);
  end.prompt_logprobs = {{.token = {token("a"), -3.f}}, {.token = {token("b"), -0.25f}, .top = {{TokenId(3), -1.f}}}};
  end.hidden_states = {1, 2, 3, 4, 5, 6};
  on_event(*answer, 0, step("x", token("b"), true), nullptr);
  on_event(*answer, 0, last("", FinishReason::kLength), &end);
  const Json body = parsed(answer->body());
  ASSERT_TRUE(body.is_array());
  const Json info = at(body, "0.meta_info");
  EXPECT_EQ(at(info, "input_token_logprobs").as_array().size(), 2u);
  EXPECT_EQ(at(info, "input_token_logprobs.0.0"), Json());
  EXPECT_EQ(at(info, "input_token_logprobs.1.0"), Json(-0.25));
  EXPECT_EQ(at(info, "input_top_logprobs.0"), Json());
  EXPECT_EQ(at(info, "input_top_logprobs.1.0.1"), Json(3));
  EXPECT_EQ(at(info, "output_top_logprobs.0").as_array().size(), 2u);
  EXPECT_EQ(at(info, "hidden_states").dump(), "[[[1, 2], [3, 4]], [5, 6]]");
  EXPECT_EQ(at(info, "finish_reason").dump(), R"({"type": "length", "length": 2})");
}

TEST(GenerateAnswer, AStreamHoldsBackEventsWithHiddenStates) {
  GenerateStyle style = generate_style(true);
  style.list = true;
  style.choices.push_back(style.choices[0]);
  style.choices[1].hidden_states = true;
  const auto answer = make_generate_answer(style);
  Completion ends[] = {end_of(1, 2, 0), end_of(1, 2, 0)};
  ends[1].hidden_states = {1, 2, 3, 4};
  EXPECT_THAT(events(on_event(*answer, 1, step("x"), nullptr)), SizeIs(1));
  EXPECT_EQ(on_event(*answer, 1, last("y", FinishReason::kStop), &ends[1]), "");
  EXPECT_THAT(events(on_event(*answer, 0, last("a", FinishReason::kStop), &ends[0])), SizeIs(1));
  std::optional<JsonParts> parts = answer->large_events();
  ASSERT_TRUE(parts.has_value());
  const std::vector<Json> held = events(parts->all());
  ASSERT_THAT(held, SizeIs(1));
  EXPECT_EQ(at(held[0], "index"), Json(1));
  EXPECT_EQ(at(held[0], "text"), Json("xy"));
  EXPECT_EQ(at(held[0], "meta_info.hidden_states").dump(), "[[[1, 2], [3, 4]]]");
  EXPECT_FALSE(make_generate_answer(generate_style(true))->large_events().has_value());
}

TEST(TokenText, PartsOfCharactersAreGivenAsBytes) {
  const std::vector<TokenId> ids = *demo_tokenizer().encode("\U0001F98A", {.add_special_tokens = false});
  std::string bytes;
  for (const TokenId id : ids) bytes += token_bytes(&demo_tokenizer(), id);
  EXPECT_EQ(bytes, "\U0001F98A");
  ASSERT_GT(ids.size(), 1u);
  EXPECT_EQ(token_text(&demo_tokenizer(), ids[0]), "\xef\xbf\xbd");
  EXPECT_EQ(token_text(&demo_tokenizer(), token("<|im_end|>")), "<|im_end|>");
  EXPECT_EQ(token_bytes(nullptr, TokenId(0)), "");
}

}  // namespace
}  // namespace tessera
