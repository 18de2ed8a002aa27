// Catches: events in an order that Anthropic's clients refuse; pieces of a tool call in the wrong content block;
// thinking that is shown although the request does not ask for it; and a wrong stop reason or usage.
#include "tessera/server/anthropic/message_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/anthropic/thinking_signature.h"
#include "tessera/server/openai/answers_test_util.h"

namespace tessera {
namespace {

using test::at;
using test::end_of;
using test::last;
using test::named_events;
using test::NamedEvent;
using test::on_event;
using test::parsed;
using test::step;
using ::testing::ElementsAre;
using ::testing::StartsWith;

MessageStyle style_of(bool stream) {
  return {.id = "msg_1",
          .model = "claude",
          .stream = stream,
          .prompt_tokens = 9,
          .text = {.choice = ToolChoice::kAuto,
                   .id_prefix = "toolu_",
                   .tool_call_parser = "hermes",
                   .tools = *Json::parse(R"([{"type": "function", "function": {"name": "f"}}])", "tools"),
                   .reasoning_parser = "qwen3"}};
}

// Returns the events in a short form: "start 0 text", "text_delta 0 abc", "stop 0".
std::vector<std::string> shown(const std::string& stream) {
  std::vector<std::string> out;
  for (const NamedEvent& event : named_events(stream)) {
    const Json* index = event.data.find("index");
    const std::string number = index != nullptr ? " " + std::to_string(index->as_int()) : "";
    if (event.type == "content_block_start") {
      out.push_back("start" + number + " " + at(event.data, "content_block.type").as_string());
    } else if (event.type == "content_block_delta") {
      const Json& delta = *event.data.find("delta");
      out.push_back(delta.find("type")->as_string() + number + " " + delta.as_object().back().second.as_string());
    } else {
      out.push_back((event.type == "content_block_stop" ? "stop" : event.type) + number);
    }
  }
  return out;
}

// Feeds each text as one token and returns the whole stream.
std::string streamed(MessageStyle style, const std::vector<const char*>& texts,
                     FinishReason reason = FinishReason::kStop, Completion end = end_of(4, 9, 6)) {
  const std::unique_ptr<Answer> answer = make_message_answer(std::move(style));
  std::string stream;
  for (const char* text : texts) stream += on_event(*answer, 0, step(text), nullptr);
  stream += on_event(*answer, 0, last("", reason), &end);
  EXPECT_TRUE(answer->failure().ok());
  return stream + answer->last_events() + answer->stream_end();
}

Json whole(MessageStyle style, const std::vector<const char*>& texts, FinishReason reason = FinishReason::kStop,
           Completion end = end_of(4, 9, 6)) {
  const std::unique_ptr<Answer> answer = make_message_answer(std::move(style));
  for (const char* text : texts) on_event(*answer, 0, step(text), nullptr);
  on_event(*answer, 0, last("", reason), &end);
  return parsed(answer->body());
}

TEST(MessageAnswer, ATextStreamsAsOneBlock) {
  const std::string stream = streamed(style_of(true), {"Hel", "lo"});
  EXPECT_THAT(shown(stream), ElementsAre("message_start", "ping", "start 0 text", "text_delta 0 Hel", "text_delta 0 lo",
                                         "stop 0", "message_delta", "message_stop"));
  const std::vector<NamedEvent> events = named_events(stream);
  const Json& message = *events.front().data.find("message");
  EXPECT_EQ(message, parsed(R"({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [],
      "stop_reason": null, "stop_sequence": null, "stop_details": null, "container": null,
      "usage": {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1,
      "output_tokens_details": {"thinking_tokens": 0}, "server_tool_use": null, "cache_creation":
      {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}, "inference_geo": null,
      "service_tier": "standard"}})"));
  const Json& delta = events[events.size() - 2].data;
  EXPECT_EQ(at(delta, "delta"), parsed(R"({"stop_reason": "end_turn", "stop_sequence": null, "stop_details": null,
      "container": null})"));
  // The prompt has nine tokens, of which six were cached.
  EXPECT_EQ(at(delta, "usage"), parsed(R"({"input_tokens": 3, "cache_creation_input_tokens": 0,
      "cache_read_input_tokens": 6, "output_tokens": 4, "output_tokens_details": {"thinking_tokens": 0},
      "server_tool_use": null})"));
}

TEST(MessageAnswer, CallsStreamAsTheirArgumentsGrow) {
  EXPECT_THAT(
      shown(streamed(style_of(true), {"Look. ", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", ": 1", "}}",
                                      "</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"})),
      ElementsAre("message_start", "ping", "start 0 text", "text_delta 0 Look.", "stop 0", "start 1 tool_use",
                  "input_json_delta 1 {\"a\"", "input_json_delta 1 : 1", "input_json_delta 1 }", "stop 1",
                  "start 2 tool_use", "input_json_delta 2 {}", "stop 2", "message_delta", "message_stop"));
}

TEST(MessageAnswer, RequiredCallsStreamAsTheirArgumentsGrow) {
  MessageStyle style = style_of(true);
  style.text.choice = ToolChoice::kRequired;
  EXPECT_THAT(shown(streamed(style, {"[{\"name\": \"f\", \"parameters\": {\"a\":", " 1}}", "]"})),
              ElementsAre("message_start", "ping", "start 0 tool_use", "input_json_delta 0 {\"a\":",
                          "input_json_delta 0  1}", "stop 0", "message_delta", "message_stop"));
}

TEST(MessageAnswer, ATextBehindACallHasItsOwnBlock) {
  const char* const parts[] = {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", "}}</tool_call> Then.",
                               " End."};
  EXPECT_THAT(shown(streamed(style_of(true), {parts[0], parts[1], parts[2]})),
              ElementsAre("message_start", "ping", "start 0 tool_use", "input_json_delta 0 {\"a\": 1",
                          "input_json_delta 0 }", "stop 0", "start 1 text", "text_delta 1  Then.", "text_delta 1  End.",
                          "stop 1", "message_delta", "message_stop"));
}

TEST(MessageAnswer, ThinkingIsShownToThoseWhoAskForIt) {
  MessageStyle style = style_of(true);
  style.shows_thinking = true;
  EXPECT_THAT(
      shown(streamed(style, {"<think>", "hm", "</think>", "Yes"})),
      ElementsAre("message_start", "ping", "start 0 thinking", "thinking_delta 0 hm", "signature_delta 0 tessera1.",
                  "stop 0", "start 1 text", "text_delta 1 Yes", "stop 1", "message_delta", "message_stop"));
  style.shows_thinking = false;
  const std::string hidden = streamed(style, {"<think>", "hm", "</think>", "Yes"});
  EXPECT_THAT(shown(hidden), ElementsAre("message_start", "ping", "start 0 text", "text_delta 0 Yes", "stop 0",
                                         "message_delta", "message_stop"));
  const std::vector<NamedEvent> events = named_events(hidden);
  EXPECT_NE(at(events[events.size() - 2].data, "usage.output_tokens_details.thinking_tokens"), Json(0));
}

TEST(MessageAnswer, OmittedThinkingIsInTheSignature) {
  MessageStyle style = style_of(true);
  style.shows_thinking = style.omits_thinking = true;
  const std::vector<std::string> events = shown(streamed(style, {"<think>", "hm", " hm", "</think>", "Yes"}));
  EXPECT_EQ(events[2], "start 0 thinking");
  ASSERT_THAT(events[3], StartsWith("signature_delta 0 tessera1."));
  EXPECT_EQ(thinking_of_signature(events[3].substr(events[3].rfind(' ') + 1)), "hm hm");
  style.stream = false;
  const Json body = whole(style, {"<think>", "hm", " hm", "</think>", "Yes"});
  EXPECT_EQ(at(body, "content.0.thinking"), Json(""));
  EXPECT_EQ(thinking_of_signature(at(body, "content.0.signature").as_string()), "hm hm");
}

TEST(MessageAnswer, AWholeMessageHasItsBlocksInOrder) {
  MessageStyle style = style_of(false);
  style.shows_thinking = true;
  const Json body = whole(
      style, {"<think>hm</think>", "Look.", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1]}}</tool_call>"});
  EXPECT_EQ(at(body, "content.0.thinking"), Json("hm"));
  EXPECT_EQ(at(body, "content.1.text"), Json("Look."));
  EXPECT_EQ(at(body, "content.2.type"), Json("tool_use"));
  EXPECT_THAT(at(body, "content.2.id").as_string(), StartsWith("toolu_"));
  EXPECT_EQ(at(body, "content.2.input").dump(), R"({"a": [1]})");
  EXPECT_EQ(at(body, "stop_reason"), Json("tool_use"));
  EXPECT_EQ(at(body, "usage.cache_read_input_tokens"), Json(6));
}

TEST(MessageAnswer, AWholeMessageHasAllMembersOfTheProtocol) {
  const Json body = whole(style_of(false), {"a"});
  for (const char* member : {"stop_sequence", "stop_details", "container"}) EXPECT_EQ(at(body, member), Json());
  EXPECT_EQ(at(body, "usage"), parsed(R"({"input_tokens": 3, "cache_creation_input_tokens": 0,
      "cache_read_input_tokens": 6, "output_tokens": 4, "output_tokens_details": {"thinking_tokens": 0},
      "server_tool_use": null, "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
      "inference_geo": null, "service_tier": "standard"})"));
}

TEST(MessageAnswer, ACallSaysThatTheModelMadeIt) {
  const char* const call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(at(whole(style_of(false), {call}), "content.0.caller").dump(), R"({"type": "direct"})");
  const std::vector<NamedEvent> events = named_events(streamed(style_of(true), {call}));
  EXPECT_EQ(at(events[2].data, "content_block.caller").dump(), R"({"type": "direct"})");
}

TEST(MessageAnswer, UsageCountsDraftsIfThereWereAny) {
  Completion end = end_of(4, 9, 6);
  EXPECT_EQ(whole(style_of(false), {"a"}, FinishReason::kStop, end).dump().find("prediction"), std::string::npos);
  end.drafts.add(3, 2);
  const Json body = whole(style_of(false), {"a"}, FinishReason::kStop, end);
  EXPECT_EQ(at(body, "usage.output_tokens_details.accepted_prediction_tokens"), Json(2));
  EXPECT_EQ(at(body, "usage.output_tokens_details.rejected_prediction_tokens"), Json(1));
}

TEST(MessageAnswer, StopReasonsSayWhatEndedTheText) {
  MessageStyle style = style_of(false);
  EXPECT_EQ(at(whole(style, {"a"}, FinishReason::kLength), "stop_reason"), Json("max_tokens"));
  style.ends_with_context = true;
  EXPECT_EQ(at(whole(style, {"a"}, FinishReason::kLength), "stop_reason"), Json("model_context_window_exceeded"));
  Completion end = end_of(1, 9, 0);
  end.matched.text = "END";
  const Json matched = whole(style, {"a"}, FinishReason::kStop, std::move(end));
  EXPECT_EQ(at(matched, "stop_reason"), Json("stop_sequence"));
  EXPECT_EQ(at(matched, "stop_sequence"), Json("END"));
}

TEST(MessageAnswer, ABrokenCallIsNoToolUse) {
  constexpr const char* kBroken = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ";
  constexpr const char* kWhole = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const auto stop_reason = [](const std::string& stream) {
    return at(named_events(stream).rbegin()[1].data, "delta.stop_reason");
  };
  for (const auto& [finish, reason] :
       {std::pair(FinishReason::kLength, "max_tokens"), std::pair(FinishReason::kStop, "end_turn")}) {
    const Json body = whole(style_of(false), {"Look.", kBroken}, finish);
    EXPECT_EQ(at(body, "content").as_array().size(), 1U) << "the text alone";
    EXPECT_EQ(at(body, "stop_reason"), Json(reason));
    EXPECT_EQ(stop_reason(streamed(style_of(true), {"Look.", kBroken}, finish)), Json(reason));
  }
  const Json both = whole(style_of(false), {kWhole, kBroken});
  EXPECT_EQ(at(both, "content").as_array().size(), 1U);
  EXPECT_EQ(at(both, "content.0.input"), Json::object());
  EXPECT_EQ(at(both, "stop_reason"), Json("tool_use"));
  for (const auto& steps : {std::vector<const char*>{kWhole, kBroken}, {kBroken, "</tool_call>", kWhole}})
    EXPECT_EQ(stop_reason(streamed(style_of(true), steps)), Json("end_turn")) << "clients would run the broken call";
}

TEST(MessageAnswer, AnEmptyMessageHasNoBlocks) {
  EXPECT_THAT(shown(streamed(style_of(true), {})),
              ElementsAre("message_start", "ping", "message_delta", "message_stop"));
  EXPECT_EQ(at(whole(style_of(false), {}), "content").dump(), "[]");
}

TEST(MessageAnswer, SilenceIsFilledFromTheBeginning) {
  const std::unique_ptr<Answer> answer = make_message_answer(style_of(true));
  ASSERT_TRUE(answer->keeps_alive());
  EXPECT_THAT(shown(answer->keep_alive()), ElementsAre("message_start", "ping", "ping"));
  EXPECT_THAT(shown(answer->keep_alive()), ElementsAre("ping"));
  EXPECT_THAT(shown(on_event(*answer, 0, step("a"), nullptr)), ElementsAre("start 0 text", "text_delta 0 a"));
}

TEST(MessageAnswer, AFailedStreamEndsWithAnError) {
  const std::unique_ptr<Answer> answer = make_message_answer(style_of(true));
  const std::vector<NamedEvent> events =
      named_events(answer->stream_failure({.http_status = 503, .message = "gone", .param = {}, .code = {}}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].type, "error");
  EXPECT_EQ(at(events[0].data, "error").dump(), R"({"type": "overloaded_error", "message": "gone"})");
}

TEST(MessageAnswer, EventsComeAtTheServersInterval) {
  MessageStyle style = style_of(true);
  style.interval = 2;
  EXPECT_THAT(shown(streamed(style, {"a", "b", "c", "d"})),
              ElementsAre("message_start", "ping", "start 0 text", "text_delta 0 a", "text_delta 0 b",
                          "text_delta 0 cd", "stop 0", "message_delta", "message_stop"));
}

TEST(MessageAnswer, EditsAreListedIfTheRequestManagesItsContext) {
  MessageStyle style = style_of(false);
  EXPECT_EQ(whole(style, {"a"}).find("context_management"), nullptr);
  style.lists_edits = true;
  EXPECT_EQ(at(whole(style, {"a"}), "context_management").dump(), R"({"applied_edits": []})");
}

}  // namespace
}  // namespace tessera
