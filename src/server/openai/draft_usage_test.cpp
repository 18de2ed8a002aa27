// Catches: answers that lack the numbers of accepted and rejected draft tokens (speculative decoding); answers that
// count only one choice's draft tokens; and answers that have these numbers although nothing was drafted.
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "tessera/server/openai/answers_test_util.h"

namespace tessera {
namespace {

using test::at;
using test::end_of;
using test::on_event;
using test::parsed;

// Returns the end of a choice. Each pair has the numbers of drafted and of accepted tokens of one forward.
Completion end_with(std::initializer_list<std::pair<std::int64_t, std::int64_t>> drafted_and_kept) {
  Completion end = end_of(2, 5, 0);
  for (const auto& [drafted, kept] : drafted_and_kept) end.drafts.add(drafted, kept);
  return end;
}

// Lets two choices end, and returns the answer's body.
Json two_choices(Answer& answer, Completion first, Completion second) {
  on_event(answer, 0, test::last("a", FinishReason::kStop), &first);
  on_event(answer, 1, test::last("b", FinishReason::kStop), &second);
  return parsed(answer.body());
}

TEST(DraftUsage, OfACompletionSumsAllChoices) {
  CompletionStyle style = test::completion_style(false);
  style.n = 2;
  const Json body = two_choices(*make_completion_answer(style), end_with({{3, 2}, {3, 0}}), end_with({{1, 1}}));
  EXPECT_EQ(at(body, "usage.completion_tokens_details.accepted_prediction_tokens"), Json(3));
  EXPECT_EQ(at(body, "usage.completion_tokens_details.rejected_prediction_tokens"), Json(4));
}

TEST(DraftUsage, OfAChatSumsAllChoices) {
  ChatStyle style = test::chat_style(false);
  style.n = 2;
  const Json body = two_choices(*make_chat_answer(style), end_with({{3, 2}}), end_with({{3, 3}}));
  EXPECT_EQ(at(body, "usage.completion_tokens_details.accepted_prediction_tokens"), Json(5));
  EXPECT_EQ(at(body, "usage.completion_tokens_details.rejected_prediction_tokens"), Json(1));
}

TEST(DraftUsage, IsAbsentWithoutDrafts) {
  ChatStyle style = test::chat_style(false);
  style.n = 2;
  const Json body = two_choices(*make_chat_answer(style), end_with({}), end_with({}));
  EXPECT_EQ(at(body, "usage.completion_tokens_details").dump(), R"({"reasoning_tokens": 0})");
}

TEST(DraftUsage, ClosesAStreamThatIncludesUsage) {
  ChatStyle style = test::chat_style(true);
  style.n = 2;
  style.stream.include_usage = true;
  const auto answer = make_chat_answer(style);
  Completion first = end_with({{3, 2}});
  Completion second = end_with({{3, 1}});
  std::string stream = on_event(*answer, 0, test::last("a", FinishReason::kStop), &first);
  stream += on_event(*answer, 1, test::last("b", FinishReason::kStop), &second);
  stream += answer->last_events();
  const std::vector<Json> chunks = test::events(stream);
  ASSERT_FALSE(chunks.empty());
  EXPECT_EQ(at(chunks.back(), "usage.completion_tokens_details.accepted_prediction_tokens"), Json(3));
  EXPECT_EQ(at(chunks.back(), "usage.completion_tokens_details.rejected_prediction_tokens"), Json(3));
}

TEST(DraftUsage, OfGenerateIsAbsentWithoutDrafts) {
  const auto answer = make_generate_answer(test::generate_style(false));
  Completion end = end_with({});
  on_event(*answer, 0, test::last("a", FinishReason::kStop), &end);
  EXPECT_EQ(at(parsed(answer->body()), "meta_info").find("spec_verify_ct"), nullptr);
}

TEST(DraftUsage, OfGenerateHasTheNamesOfSglang) {
  const auto answer = make_generate_answer(test::generate_style(false));
  Completion end = end_with({{3, 2}, {1, 1}});
  on_event(*answer, 0, test::last("a", FinishReason::kStop), &end);
  const Json body = parsed(answer->body());
  const Json& info = at(body, "meta_info");
  EXPECT_EQ(at(info, "spec_verify_ct"), Json(2));
  EXPECT_EQ(at(info, "spec_draft_token_num"), Json(4));
  EXPECT_EQ(at(info, "spec_accept_token_num"), Json(3));
  EXPECT_EQ(at(info, "spec_accept_rate"), Json(0.75));
  EXPECT_EQ(at(info, "spec_accept_length"), Json(2.5));
}

}  // namespace
}  // namespace tessera
