// Catches: events that are missing, out of order or unnumbered; output items whose text differs from the text in their
// events; tool calls with wrong names; and responses that are stored wrongly.
#include "tessera/server/responses/response_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tessera/server/openai/answers_test_util.h"
#include "tessera/server/responses/encoded_text.h"
#include "tessera/server/responses/response_head.h"

namespace tessera {
namespace {

using test::at;
using test::end_of;
using test::last;
using test::on_event;
using test::parsed;
using test::step;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ResponseStyle response_style(bool stream) {
  ResponseStyle style{.id = "resp_1",
                      .head = make_response_head(ApiFields(Json::object()), {.id = "resp_1", .model = "demo"})};
  style.text = {.choice = ToolChoice::kAuto, .tool_call_parser = "hermes", .reasoning_parser = "qwen3"};
  style.tools = {{.shown = "n__f", .name = "f", .space = "n"}, {.shown = "patch", .name = "patch", .custom = true}};
  style.stream = stream;
  style.prompt_tokens = 5;
  style.tokenizer = &test::demo_tokenizer();
  return style;
}

// Returns the JSON of each event. Checks that the sequence numbers of the events are consecutive.
std::vector<Json> numbered_events(const std::string& stream) {
  std::vector<Json> out;
  for (test::NamedEvent& event : test::named_events(stream)) {
    out.push_back(std::move(event.data));
    EXPECT_EQ(*out.back().find("sequence_number"), Json(out.size() - 1));
  }
  return out;
}

std::vector<std::string> types(const std::vector<Json>& events) {
  std::vector<std::string> out;
  for (const Json& event : events) out.push_back(event.find("type")->as_string().substr(9));
  return out;
}

constexpr const char* kTexts[] = {
    "<think>r",
    "s</think>",
    "a",
    "b",
    "<tool_call>\n{\"name\": \"n__f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"+\\n\"}}\n</tool_call>"};

std::string run(ResponseAnswer& answer, FinishReason finish = FinishReason::kStop) {
  std::string stream;
  for (const char* text : kTexts) stream += on_event(answer, 0, step(text), nullptr);
  Completion end = end_of(6, 5, 3);
  return stream + on_event(answer, 0, last("", finish), &end);
}

TEST(ResponseAnswer, StreamsEveryEventInOrder) {
  ResponseAnswer answer(response_style(true));
  std::string stream = run(answer);
  stream += answer.last_events();
  const std::vector<Json> all = numbered_events(stream);
  EXPECT_THAT(types(all),
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta",
                          "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done",
                          "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
                          "output_text.done", "content_part.done", "output_item.done", "output_item.added",
                          "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
                          "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done",
                          "output_item.done", "completed"));
  EXPECT_EQ(at(all[0], "response.status"), Json("in_progress"));
  EXPECT_EQ(at(all[13], "text"), Json("ab"));
  EXPECT_EQ(at(all[16], "item.name"), Json("f"));
  EXPECT_EQ(at(all[16], "item.namespace"), Json("n"));
  EXPECT_EQ(at(all[18], "arguments"), Json("{\"x\": 1}"));
  EXPECT_EQ(at(all[18], "output_index"), Json(2));
  EXPECT_EQ(at(all[22], "input"), Json("+\n"));
  const Json response = at(all[24], "response");
  EXPECT_EQ(at(response, "status"), Json("completed"));
  EXPECT_EQ(at(response, "output.0.content.0.text"), Json("rs"));
  EXPECT_EQ(at(response, "output.1.content.0.text"), Json("ab"));
  EXPECT_EQ(at(response, "output.3.type"), Json("custom_tool_call"));
  EXPECT_EQ(at(response, "usage.input_tokens"), Json(5));
  EXPECT_EQ(at(response, "usage.input_tokens_details.cached_tokens"), Json(3));
  EXPECT_EQ(at(response, "usage.output_tokens"), Json(6));
  EXPECT_EQ(at(response, "usage.total_tokens"), Json(11));
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(at(all[std::array{8, 15, 19, 23}[i]], "item"), at(response, "output." + std::to_string(i)));
}

TEST(ResponseAnswer, PlainAnswerHasTheStreamsItems) {
  ResponseStyle style = response_style(false);
  style.items = {.summary = true, .encoded = true};
  ResponseAnswer answer(style);
  EXPECT_EQ(run(answer), "");
  const Json body = parsed(answer.body());
  EXPECT_EQ(at(body, "output.0.summary.0.text"), Json("rs"));
  EXPECT_EQ(at(body, "output.0.content"), Json::array());
  EXPECT_EQ(decode_text(at(body, "output.0.encrypted_content").as_string()), "rs");
  EXPECT_EQ(at(body, "output.2.arguments"), Json("{\"x\": 1}"));
  EXPECT_EQ(at(body, "object"), Json("response"));
  EXPECT_EQ(at(body, "error"), Json());
}

TEST(ResponseAnswer, SummaryEventsReplaceTheReasonings) {
  ResponseStyle style = response_style(true);
  style.items.summary = true;
  ResponseAnswer answer(style);
  std::string stream = on_event(answer, 0, step("<think>r</think>"), nullptr);
  Completion end = end_of(1, 5, 0);
  stream += on_event(answer, 0, last("", FinishReason::kStop), &end);
  stream += answer.last_events();
  EXPECT_THAT(types(numbered_events(stream)),
              ElementsAre("created", "in_progress", "output_item.added", "reasoning_summary_part.added",
                          "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done",
                          "output_item.done", "completed"));
}

TEST(ResponseAnswer, ACutOffResponseIsIncomplete) {
  ResponseAnswer answer(response_style(true));
  std::string stream = on_event(answer, 0, step("a"), nullptr);
  Completion end = end_of(1, 5, 0);
  end.drafts.add(3, 1);
  stream += on_event(answer, 0, last("", FinishReason::kLength), &end);
  stream += answer.last_events();
  const Json event = numbered_events(stream).back();
  EXPECT_EQ(at(event, "type"), Json("response.incomplete"));
  EXPECT_EQ(at(event, "response.status"), Json("incomplete"));
  EXPECT_EQ(at(event, "response.incomplete_details.reason"), Json("max_output_tokens"));
  EXPECT_EQ(at(event, "response.output.0.status"), Json("incomplete"));
  EXPECT_EQ(at(event, "response.usage.output_tokens_details.accepted_prediction_tokens"), Json(1));
  EXPECT_EQ(at(event, "response.usage.output_tokens_details.rejected_prediction_tokens"), Json(2));
}

TEST(ResponseAnswer, ABrokenCallIsIncomplete) {
  for (const FinishReason finish : {FinishReason::kStop, FinishReason::kLength}) {
    ResponseAnswer answer(response_style(false));
    on_event(answer, 0, step("<tool_call>\n{\"name\": \"n__f\", \"arguments\": {}}\n</tool_call>"), nullptr);
    on_event(answer, 0, step("<tool_call>\n{\"name\": \"n__f\", \"arguments\": {\"x\": "), nullptr);
    Completion end = end_of(2, 5, 0);
    on_event(answer, 0, last("", finish), &end);
    const Json body = parsed(answer.body());
    EXPECT_EQ(at(body, "output.0.status"), Json("completed"));
    EXPECT_EQ(at(body, "output.1.arguments"), Json("{\"x\": "));
    EXPECT_EQ(at(body, "output.1.status"), Json("incomplete"));
  }
  for (const auto& [arguments, input, status] :
       {std::tuple("{\"input\": \"ab", "ab", "incomplete"), std::tuple("{\"input\": \"ab\"", "ab", "incomplete"),
        std::tuple("{\"in", "{\"in", "incomplete"), std::tuple("{\"input\": \"ab\"}", "ab", "completed")}) {
    ResponseAnswer answer(response_style(false));
    on_event(answer, 0, step("<tool_call>\n{\"name\": \"patch\", \"arguments\": "), nullptr);
    on_event(answer, 0, step(arguments), nullptr);
    Completion end = end_of(1, 5, 0);
    on_event(answer, 0, last("", FinishReason::kStop), &end);
    const Json body = parsed(answer.body());
    EXPECT_EQ(at(body, "output.0.input"), Json(input)) << arguments;
    EXPECT_EQ(at(body, "output.0.status"), Json(status)) << arguments;
  }
}

TEST(ResponseAnswer, AnEmptyTextIsAnEmptyMessage) {
  ResponseAnswer answer(response_style(false));
  Completion end = end_of(1, 5, 0);
  on_event(answer, 0, last("", FinishReason::kStop), &end);
  EXPECT_EQ(at(parsed(answer.body()), "output.0.content.0.text"), Json(""));
}

TEST(ResponseAnswer, AFailureHasTheErrorAndTheNextNumber) {
  ResponseAnswer answer(response_style(true));
  std::string stream = on_event(answer, 0, step("a"), nullptr);
  stream += answer.stream_failure({.http_status = 503, .message = "lost", .param = {}, .code = "service_unavailable"});
  const Json event = numbered_events(stream).back();
  EXPECT_EQ(at(event, "type"), Json("response.failed"));
  EXPECT_EQ(at(event, "response.error.code"), Json("service_unavailable"));
  EXPECT_EQ(at(event, "response.error.message"), Json("lost"));
}

TEST(ResponseAnswer, LogprobsStandWithTheirText) {
  ResponseStyle style = response_style(true);
  style.logprobs = true;
  ResponseAnswer answer(style);
  std::string stream = on_event(answer, 0, step("<think>r</think>", TokenId(1), true), nullptr);
  stream += on_event(answer, 0, step("a", TokenId(1), true), nullptr);
  stream += on_event(answer, 0, step("b", TokenId(2), true), nullptr);
  Completion end = end_of(3, 5, 0);
  stream += on_event(answer, 0, last("", FinishReason::kStop), &end);
  stream += answer.last_events();
  const std::vector<Json> all = numbered_events(stream);
  EXPECT_EQ(at(all[10], "type"), Json("response.output_text.delta"));
  EXPECT_EQ(at(all[10], "logprobs.0.logprob"), Json(-0.5));
  EXPECT_EQ(at(all.back(), "response.output.1.content.0.logprobs").as_array().size(), 2U);
}

TEST(ResponseAnswer, StoresTheResponseWithItsTurn) {
  ResponseStore store({});
  ResponseStyle style = response_style(false);
  style.keeping = {.store = &store, .owner = "me", .input = "[1]"};
  ResponseAnswer answer(style);
  run(answer);
  const std::string body = answer.body();
  const auto kept = store.find("resp_1", "me");
  ASSERT_TRUE(kept.ok());
  const StoredResponse response = **ApiResult(kept);
  EXPECT_EQ(at(parsed(response.body), "output"), at(parsed(body), "output"));
  EXPECT_EQ(response.turn->input, "[1]");
  EXPECT_EQ(parsed(response.turn->output), at(parsed(body), "output"));
  EXPECT_EQ(response.item_ids.size(), 4U);
}

TEST(ResponseAnswer, ABackgroundResponseIsStoredAsItGrows) {
  ResponseStore store({});
  ResponseStyle style = response_style(false);
  style.keeping = {.store = &store, .owner = "me", .input = "[]", .background = true};
  ResponseAnswer answer(style);
  ASSERT_TRUE(answer.keep_running(nullptr).ok());
  const auto body = [&] { return parsed((**ApiResult(store.find("resp_1", "me"))).body); };
  EXPECT_EQ(at(body(), "status"), Json("queued"));
  for (const char* text : kTexts) on_event(answer, 0, step(text), nullptr);
  EXPECT_EQ(at(body(), "status"), Json("in_progress"));
  EXPECT_THAT(at(body(), "output").dump(), HasSubstr("\"rs\""));
  answer.cancelled();
  EXPECT_EQ(at(body(), "status"), Json("cancelled"));
  EXPECT_FALSE((**ApiResult(store.find("resp_1", "me"))).running);
}

TEST(ResponseAnswer, AFailedBackgroundResponseIsStoredAsFailed) {
  ResponseStore store({});
  ResponseStyle style = response_style(false);
  style.keeping = {.store = &store, .owner = "me", .input = "[]", .background = true};
  ResponseAnswer answer(style);
  ASSERT_TRUE(answer.keep_running(nullptr).ok());
  EXPECT_EQ(answer.stream_failure({.http_status = 503, .message = "lost", .param = {}, .code = {}}), "");
  const StoredResponse kept = **ApiResult(store.find("resp_1", "me"));
  EXPECT_EQ(at(parsed(kept.body), "status"), Json("failed"));
  EXPECT_EQ(at(parsed(kept.body), "error.code"), Json("server_error"));
  EXPECT_FALSE(kept.running);
  EXPECT_EQ(kept.turn, nullptr);
}

}  // namespace
}  // namespace tessera
