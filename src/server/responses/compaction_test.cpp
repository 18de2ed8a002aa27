// Catches: summaries that are blank or cut off and look complete; a summary that begins without room in the context;
// and compacted conversations that templates refuse.
#include "tessera/server/responses/compaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/openai/answers_test_util.h"
#include "tessera/server/responses/encoded_text.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kLeastRoom = 64;  // a quarter of the test model's context

ApiResult<ApiJob> prepare(const std::string& members, const ServedModel& model) {
  ResponseStore store({});
  return prepare_compaction(model, R"({"model": "demo", )" + members + "}", store, "owner");
}
ApiResult<ApiJob> prepare(const std::string& members) {
  static const ServedModel model = test_model();  // outlives the jobs
  return prepare(members, model);
}

// Returns the answer after the model has written `text`.
std::unique_ptr<Answer> answer_of(const char* text, FinishReason reason) {
  ApiResult<ApiJob> job = prepare(R"("input": "a")");
  EXPECT_TRUE(job.ok()) << job.error().message;
  Completion end = end_of(1, 1, 0);
  on_event(*job->answer, 0, last(text, reason), &end);
  return std::move(job->answer);
}

TEST(Compaction, BlankSummariesAreErrors) {
  EXPECT_TRUE(prepare(R"("input": "a")")->answer->failure().ok()) << "the model has not written yet";
  for (const char* text : {"", " \n\t"})
    for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled}) {
      const Status failure = answer_of(text, reason)->failure();
      EXPECT_EQ(failure.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(failure.message(), HasSubstr("\"max_output_tokens\""));
    }
}

TEST(Compaction, CutOffSummariesSayWhy) {
  const auto details = [](FinishReason reason) {
    const std::unique_ptr<Answer> answer = answer_of("half of it", reason);
    EXPECT_TRUE(answer->failure().ok());
    const Json body = parsed(answer->body());
    const Json& item = body.find("output")->as_array().back();
    EXPECT_EQ(decode_text(item.find("encrypted_content")->as_string()), "half of it");
    const Json* found = body.find("incomplete_details");
    return found == nullptr ? "" : found->find("reason")->as_string();
  };
  EXPECT_EQ(details(FinishReason::kStop), "");
  EXPECT_EQ(details(FinishReason::kLength), "max_output_tokens");
  EXPECT_EQ(details(FinishReason::kCancelled), "cancelled");
}

TEST(Compaction, AContextWithoutRoomIsRefused) {
  int made = 0;
  int refused = 0;
  for (int words = 0; words < 300; words += 20) {
    std::string text = "a";
    for (int i = 0; i < words; ++i) text += " a";
    ApiResult<ApiJob> job = prepare(R"("input": ")" + text + "\"");
    if (job.ok()) {
      ++made;
      EXPECT_GE(job->requests[0].stop.max_new_tokens, kLeastRoom);
    } else {
      ++refused;
      EXPECT_EQ(job.error().code, "context_length_exceeded");
    }
  }
  EXPECT_GT(made, 0);
  EXPECT_GT(refused, 0);
}

TEST(Compaction, TruncationLeavesRoomForTheSummary) {
  std::string items;
  for (int i = 0; i < 60; ++i)
    items += R"({"role": "user", "content": "a b c"}, {"role": "assistant", "content": "d"}, )";
  items += R"({"role": "user", "content": "e"})";
  EXPECT_EQ(prepare(R"("input": [)" + items + "]").error().code, "context_length_exceeded");
  ApiResult<ApiJob> job = prepare(R"("truncation": "auto", "input": [)" + items + "]");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_GE(job->requests[0].stop.max_new_tokens, kLeastRoom);
}

TEST(Compaction, SessionsAndSkippedToolsAreNotLost) {
  ApiResult<ApiJob> job =
      prepare(R"("input": "a", "session_id": "s", "retention_seconds": 60, "tools": [{"type": "web_search"}])");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->requests[0].retention.session, "s");
  EXPECT_THAT(job->note, HasSubstr("web_search"));
}

TEST(Compaction, TheUsersMessagesAreChargedUntilTheAnswerEnds) {
  ServedModel model = test_model();
  model.memory = std::make_shared<MemoryBudget>(1 << 20);
  const auto held = [&](std::size_t bytes) {
    ApiResult<ApiJob> job = prepare(R"("input": ")" + std::string(bytes, 'a') + "\"", model);
    EXPECT_TRUE(job.ok()) << job.error().message;
    return model.memory->used();
  };
  EXPECT_EQ(held(41) - held(1), 2 * 40) << "the list, and its copy in the answer";
  EXPECT_EQ(model.memory->used(), 0);
}

// Some published templates fail in this way if two messages of one role follow each other.
constexpr const char* kAlternating =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must "
    "alternate') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";

std::string prompt_text(const ApiJob& job) { return demo_tokenizer().decode(job.requests[0].prompt, false); }

TEST(Compaction, TemplatesWhoseRolesAlternateReadTheSummary) {
  const std::string items = R"([{"role": "user", "content": "first"}, {"type": "compaction", "encrypted_content": ")" +
                            encode_text("done") + R"("}, {"role": "user", "content": "next"}])";
  ServedModel model = test_model();
  ApiResult<ApiJob> apart = prepare(R"("input": )" + items, model);
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  EXPECT_THAT(prompt_text(*apart), HasSubstr("user:first;user:Summary")) << "joined without need";
  model.chat = *ChatTemplate::parse(kAlternating);
  ApiResult<ApiJob> joined = prepare(R"("input": )" + items, model);
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_THAT(prompt_text(*joined), HasSubstr("user:first\nSummary of the conversation so far:\ndone\nnext\n"));
  ApiResult<ApiJob> wrong = prepare(R"("input": [{"role": "assistant", "content": "a"}])", model);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("roles must alternate"));
}

}  // namespace
}  // namespace tessera::test
