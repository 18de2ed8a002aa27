// Catches: errors that the clients of a path's protocol cannot read, and error types that make clients retry or give up
// wrongly.
#include "tessera/server/http/error_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/json.h"
#include "tessera/server/http/api_error.h"
#include "tessera/server/http/http_test_util.h"

namespace tessera {
namespace {

using testing::get;
using ::testing::HasSubstr;
using testing::post;
using testing::Reply;
using testing::TestServer;

TEST(ErrorShape, BelongsToThePathsOfItsProtocol) {
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens", "/v1/messages/batches"})
    EXPECT_EQ(error_shape_of(path), ErrorShape::kAnthropic) << path;
  for (const char* path : {"/", "/v1/messagesx", "/v1", "/v1/chat/completions", ""})
    EXPECT_EQ(error_shape_of(path), ErrorShape::kOpenAi) << path;
}

TEST(ErrorShape, AnthropicsErrorHasItsTypeAndTheRequestsId) {
  const ApiError error{.http_status = 429, .message = "busy", .param = "messages", .code = "c", .retry_after_s = 2};
  const HttpResponse response = error.to_response(ErrorShape::kAnthropic);
  EXPECT_EQ(response.status, 429);
  const Json body = *Json::parse(response.body, "body");
  EXPECT_EQ(*body.find("type"), Json("error"));
  EXPECT_EQ(body.find("error")->dump(), R"({"type": "rate_limit_error", "message": "busy"})");
  ASSERT_EQ(response.headers.size(), 2U);
  EXPECT_EQ(response.headers[0].first, "request-id");
  EXPECT_EQ(*body.find("request_id"), Json(response.headers[0].second));
  EXPECT_EQ(response.headers[1], (std::pair<std::string, std::string>("Retry-After", "2")));
}

TEST(ErrorShape, AnthropicsTypesFollowTheStatus) {
  for (const auto& [status, type] : std::initializer_list<std::pair<int, const char*>>{{400, "invalid_request_error"},
                                                                                       {401, "authentication_error"},
                                                                                       {403, "permission_error"},
                                                                                       {404, "not_found_error"},
                                                                                       {405, "invalid_request_error"},
                                                                                       {408, "timeout_error"},
                                                                                       {413, "request_too_large"},
                                                                                       {415, "invalid_request_error"},
                                                                                       {500, "api_error"},
                                                                                       {501, "api_error"},
                                                                                       {503, "overloaded_error"}}) {
    const std::string json =
        ApiError{.http_status = status, .message = "m", .param = {}, .code = {}}.to_json(ErrorShape::kAnthropic);
    EXPECT_THAT(json, HasSubstr(std::string("\"type\": \"") + type)) << status;
  }
}

TEST(ErrorShape, AnswersOfTheHttpLayerHaveIt) {
  HttpOptions options;
  options.max_body_bytes = 10;
  TestServer server(testing::echo, options);
  const Reply large = server.ask(post("/v1/messages?beta=true", std::string(11, 'b')));
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.body, HasSubstr(R"("type": "request_too_large")"));
  EXPECT_THAT(large.head, HasSubstr("request-id: req_"));
  const Reply other = server.ask(post("/v1/completions", std::string(11, 'b')));
  EXPECT_EQ(other.status, 413);
  EXPECT_THAT(other.body, HasSubstr(R"("param": null)"));
  const Reply foreign = server.ask(get("/v1/messages", "Origin: http://a\r\n"));
  EXPECT_EQ(foreign.status, 403);
  EXPECT_THAT(foreign.body, HasSubstr("permission_error"));
}

}  // namespace
}  // namespace tessera
