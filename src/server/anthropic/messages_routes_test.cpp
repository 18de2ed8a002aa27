// Catches: Anthropic's routes that do not reach the engine through HTTP; API keys in Anthropic's header that are
// refused; errors in another protocol's form; and a stream that lacks Anthropic's last event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class MessagesRoutes : public ServerTest {};

std::string message(const std::string& members, const std::string& target = "/v1/messages?beta=true") {
  return post(target, R"({"model": "claude-sonnet-4-5", "max_tokens": 4, "temperature": 0,
      "messages": [{"role": "user", "content": "Once upon a time"}])" +
                          members + "}");
}

TEST_F(MessagesRoutes, AMessageHasTheRequestedNameAndItsUsage) {
  Running running(engine());
  const Reply reply = running.ask(message(""));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(reply.head, HasSubstr("request-id: req_"));
  const Json body = *Json::parse(reply.body, "body");
  EXPECT_EQ(*body.find("model"), Json("claude-sonnet-4-5"));
  EXPECT_EQ(*body.find("role"), Json("assistant"));
  EXPECT_GT(body.find("usage")->find("input_tokens")->as_int(), 0);
  EXPECT_GT(body.find("usage")->find("output_tokens")->as_int(), 0);
}

TEST_F(MessagesRoutes, TheStreamSaysWhatTheMessageSays) {
  Running running(engine());
  const Reply reply = running.ask(message(R"(, "stream": true)"));
  EXPECT_THAT(reply.head, HasSubstr("text/event-stream"));
  EXPECT_THAT(reply.head, HasSubstr("request-id: req_"));
  EXPECT_THAT(reply.body, StartsWith("event: message_start\ndata: {\"type\":\"message_start\""));
  EXPECT_TRUE(reply.body.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")) << reply.body;
  const Json whole = running.json(message(""));
  std::string text;
  constexpr std::string_view kDelta = R"("type":"text_delta","text":)";
  for (std::size_t at = reply.body.find(kDelta); at != std::string::npos; at = reply.body.find(kDelta, at + 1)) {
    const std::size_t begin = at + kDelta.size();
    text += Json::parse(std::string_view(reply.body).substr(begin, reply.body.find("}}\n", begin) - begin), "text")
                ->as_string();
  }
  ASSERT_FALSE(whole.find("content")->as_array().empty()) << whole.dump();
  EXPECT_EQ(text, whole.find("content")->as_array()[0].find("text")->as_string());
}

TEST_F(MessagesRoutes, CountingAgreesWithTheUsage) {
  Running running(engine());
  const Json counted = running.json(post("/v1/messages/count_tokens", R"({"model": "claude",
      "messages": [{"role": "user", "content": "Once upon a time"}]})"));
  const Json usage = *running.json(message("")).find("usage");
  EXPECT_EQ(counted.find("input_tokens")->as_int(),
            usage.find("input_tokens")->as_int() + usage.find("cache_read_input_tokens")->as_int());
}

TEST_F(MessagesRoutes, ZeroTokensComputeThePromptAlone) {
  Running running(engine());
  const Json body = running.json(post("/v1/messages", R"({"model": "claude", "max_tokens": 0,
      "messages": [{"role": "user", "content": "A fresh prompt"}]})"));
  EXPECT_EQ(body.find("content")->dump(), "[]");
  EXPECT_EQ(*body.find("stop_reason"), Json("max_tokens"));
  EXPECT_EQ(body.find("usage")->find("output_tokens")->as_int(), 0);
}

TEST_F(MessagesRoutes, ErrorsHaveAnthropicsForm) {
  Running running(engine());
  const Reply wrong = running.ask(message(R"(, "top_p": 7)"));
  EXPECT_EQ(wrong.status, 400);
  EXPECT_THAT(wrong.body, HasSubstr(R"({"type": "error", "error": {"type": "invalid_request_error", "message": )"));
  EXPECT_THAT(wrong.body, HasSubstr("top_p"));
  EXPECT_THAT(wrong.body, HasSubstr(R"("request_id": "req_)"));
  const Reply method = running.ask(get("/v1/messages"));
  EXPECT_EQ(method.status, 405);
  EXPECT_THAT(method.body, HasSubstr(R"("type": "error")"));
  const Reply unknown = running.ask(post("/v1/messages/batches", "{}"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("not_found_error"));
}

TEST_F(MessagesRoutes, AKeyMayComeAsAnthropicsHeader) {
  ServerOptions options;
  options.api_keys = {"secret"};
  Running running(engine(), std::move(options));
  const Reply without = running.ask(message(""));
  EXPECT_EQ(without.status, 401);
  EXPECT_THAT(without.body, HasSubstr("authentication_error"));
  std::string with = message("");
  with.insert(with.find("\r\n") + 2, "x-api-key: secret\r\n");
  EXPECT_EQ(running.ask(with).status, 200);
}

}  // namespace
}  // namespace tessera::testing
