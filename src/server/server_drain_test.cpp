// Catches: a stopping server that cuts off streams, accepts requests that it will not finish, or informs load balancers
// too late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kLong = R"("prompt": "Once", "max_tokens": 480, "ignore_eos": true)";

TEST_F(ServerTest, AStopLetsStreamsEnd) {
  Running running(engine());
  Client stream(running.port);
  stream.send(completion(R"("prompt": "Once", "max_tokens": 100, "ignore_eos": true, "stream": true)"));
  EXPECT_THAT(stream.read_through("\n\n"), HasSubstr("200"));
  running.server->stop(30);
  running.join();
  EXPECT_TRUE(running.result.ok());
  const std::string rest = stream.read_to_end();
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
  EXPECT_THAT(rest, Not(HasSubstr("error")));
  EXPECT_FALSE(Client(running.port).connected());
}

TEST_F(ServerTest, ADrainingServerSaysSoAndRefusesNewRequests) {
  Running running(engine());
  Client kept(running.port);
  EXPECT_EQ(kept.ask(get("/health")).status, 200);
  running.server->stop(30, /*notice_s=*/30);
  const Reply health = kept.ask(get("/health"));  // sent on a connection that existed before
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr("draining"));
  EXPECT_TRUE(health.has_line("Connection: close"));
  EXPECT_EQ(running.ask(get("/health")).status, 503) << "on a new one";
  for (const std::string& request : {completion(R"("prompt": "a")"), get("/v1/models"), post("/tokenize", "{}")}) {
    const Reply refused = running.ask(request);
    EXPECT_EQ(refused.status, 503) << request;
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
    EXPECT_THAT(refused.body, HasSubstr("service_unavailable"));
  }
  EXPECT_EQ(running.ask(get("/metrics")).status, 200);
}

TEST_F(ServerTest, AForcedStopEndsStreamsWithAnError) {
  const Running running(engine());
  Client text(running.port);
  Client chat(running.port);
  Client generated(running.port);
  Client whole(running.port);
  text.send(completion(kLong + R"(, "stream": true)"));
  chat.send(post("/v1/chat/completions",
                 R"({"model": "demo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 400,
      "ignore_eos": true, "stream": true})"));
  generated.send(post("/generate", R"({"text": "a", "stream": true, "sampling_params": {"max_new_tokens": 480,
      "ignore_eos": true}})"));
  whole.send(completion(kLong));
  for (Client* client : {&text, &chat, &generated}) EXPECT_THAT(client->read_through("data: "), HasSubstr("200"));
  running.server->stop(0);
  for (Client* client : {&text, &chat, &generated}) {
    const std::string rest = client->read_to_end();
    EXPECT_THAT(rest, HasSubstr(R"({"error": {"message": "the server was stopped before the request's end")"));
    EXPECT_THAT(rest, HasSubstr("data: [DONE]\n\n\r\n0\r\n\r\n")) << "a whole chunked body";
  }
  const Reply refused = whole.read_reply();
  EXPECT_EQ(refused.status, 503) << refused.body;
}

}  // namespace
}  // namespace tessera::testing
