// Catches: a request that is read as another kind of request; an invalid line whose custom_id is lost; an error that
// does not say what is accepted; and answers that are not in OpenAI's form.
#include "tessera/server/batches/batch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(BatchLines, ReadsBothForms) {
  Json id;
  const Result<BatchRequest> chat = read_batch_line(
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[],"x":1}})", id);
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat->kind, BatchRequestKind::kChat);
  EXPECT_EQ(chat->body, R"({"messages": [], "x": 1})");
  EXPECT_EQ(id, Json("a"));

  const Result<BatchRequest> completion =
      read_batch_line(R"({"custom_id":"b","url":"/v1/completions","body":{"prompt":"x"}})", id);
  ASSERT_TRUE(completion.ok()) << completion.status().message();
  EXPECT_EQ(completion->kind, BatchRequestKind::kCompletion);
  EXPECT_EQ(id, Json("b"));

  Json none;
  const Result<BatchRequest> bare = read_batch_line(R"({"prompt":"x"})", none);
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  EXPECT_EQ(bare->kind, BatchRequestKind::kCompletion);
  EXPECT_EQ(bare->body, R"({"prompt":"x"})");
  EXPECT_TRUE(none.is_null());
  EXPECT_EQ(read_batch_line(R"({"messages":[]})", none)->kind, BatchRequestKind::kChat);
  EXPECT_EQ(read_batch_line(R"({"input":"x"})", none)->kind, BatchRequestKind::kEmbedding);
  EXPECT_EQ(read_batch_line(R"({"custom_id":"e","url":"/v1/embeddings","body":{"input":["x"]}})", id)->kind,
            BatchRequestKind::kEmbedding);
  EXPECT_EQ(read_batch_line(R"({"custom_id":"e","url":"/v1/classify","body":{"input":["x"]}})", id)->kind,
            BatchRequestKind::kClassification);

  EXPECT_EQ(read_batch_line(R"({"custom_id":"c","prompt":"x"})", id)->body, R"({"prompt": "x"})");
  EXPECT_EQ(id, Json("c"));
}

TEST(BatchLines, RefusesBadLines) {
  const auto error = [](std::string_view line, const Json& expected_id) {
    Json id;
    const Result<BatchRequest> request = read_batch_line(line, id);
    EXPECT_FALSE(request.ok()) << line;
    EXPECT_EQ(id, expected_id) << line;
    return request.ok() ? "" : request.status().message();
  };
  EXPECT_THAT(error("{", {}), HasSubstr("the line"));
  EXPECT_THAT(error("[1]", {}), HasSubstr("accepted is a JSON object"));
  EXPECT_THAT(error("{}", {}), HasSubstr("\"messages\", \"prompt\" and \"input\""));
  EXPECT_THAT(error(R"({"custom_id":3,"prompt":"x"})", {}), HasSubstr("custom_id"));
  EXPECT_THAT(error(R"({"url":"/v1/completions","body":{}})", {}), HasSubstr("custom_id"));
  EXPECT_THAT(error(R"({"custom_id":"a","url":"/v1/rerank","body":{}})", "a"),
              HasSubstr("\"/v1/completions\", \"/v1/embeddings\", \"/v1/classify\" or \"/v1/responses\""));
  EXPECT_THAT(error(R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})", "a"), HasSubstr("POST"));
  EXPECT_THAT(error(R"({"custom_id":"a","url":"/v1/completions","body":[]})", "a"), HasSubstr("an object"));
  EXPECT_THAT(error(R"({"custom_id":"a","url":"/v1/completions"})", "a"), HasSubstr("an object"));
}

TEST(BatchLines, AWholeLineHasAllFourMembers) {
  const auto error = [](std::string_view line) {
    Json id;
    const Result<BatchRequest> request = read_whole_batch_line(line, id);
    return request.ok() ? "" : request.status().message();
  };
  EXPECT_EQ(error(R"({"custom_id":"a","method":"POST","url":"/v1/responses","body":{"input":"x"}})"), "");
  EXPECT_THAT(error(R"({"custom_id":"","method":"POST","url":"/v1/responses","body":{}})"), HasSubstr("custom_id"));
  EXPECT_THAT(error(R"({"custom_id":"a","url":"/v1/responses","body":{}})"), HasSubstr("method"));
  EXPECT_THAT(error(R"({"custom_id":"a","method":"POST","body":{}})"), HasSubstr("url"));
  EXPECT_THAT(error(R"({"custom_id":"a","prompt":"x"})"), HasSubstr("method")) << "a bare body is none";
}

TEST(BatchLines, WritesAnswersInOpenAisForm) {
  const std::string line = batch_answer("a", "cmpl-1", R"({"x":1})");
  ASSERT_TRUE(line.ends_with('\n'));
  const Result<Json> answer = Json::parse(line, "answer");
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(*answer->find("custom_id"), Json("a"));
  EXPECT_TRUE(answer->find("id")->as_string().starts_with("batch_req_"));
  EXPECT_EQ(answer->find("response")->dump(), R"({"status_code": 200, "request_id": "cmpl-1", "body": {"x": 1}})");
  EXPECT_TRUE(answer->find("error")->is_null());

  const Result<Json> refusal =
      Json::parse(batch_refusal({}, {.http_status = 400, .message = "no", .param = "n", .code = "c"}), "refusal");
  ASSERT_TRUE(refusal.ok()) << refusal.status().message();
  EXPECT_TRUE(refusal->find("custom_id")->is_null());
  const Json& response = *refusal->find("response");
  EXPECT_EQ(*response.find("status_code"), Json(400));
  EXPECT_EQ(*response.find("body")->find("error")->find("message"), Json("no"));

  const Result<Json> error = Json::parse(batch_error("b", "invalid_line", "what"), "error");
  ASSERT_TRUE(error.ok()) << error.status().message();
  EXPECT_TRUE(error->find("response")->is_null());
  EXPECT_EQ(*error->find("error")->find("message"), Json("what"));
}

}  // namespace
}  // namespace tessera
