// Catches: answers that the HTTP layer makes itself but does not report, and a refusal that has a body although the
// request is a HEAD.
#include <gmock/gmock.h>

#include <mutex>

#include "tessera/server/http/http_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Records the status that a server reports for each of its own answers, before the answer is sent.
class Told {
 public:
  HttpOptions options() {
    HttpOptions options;
    options.max_header_bytes = 1024;
    options.max_body_bytes = 10;
    options.header_timeout_s = 0.2;
    options.on_own_answer = [this](int status) {
      const std::lock_guard lock(mutex_);
      statuses_.push_back(status);
    };
    return options;
  }
  std::vector<int> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(statuses_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<int> statuses_;
};

TEST(HttpOwnAnswers, AreReportedWithTheirStatus) {
  Told told;
  TestServer server(echo, told.options());
  EXPECT_EQ(server.ask(get("/")).status, 200);
  EXPECT_THAT(told.take(), IsEmpty()) << "the handler's";
  for (const auto& [status, request] :
       std::initializer_list<std::pair<int, std::string>>{{400, "no request\r\n\r\n"},
                                                          {403, get("/", "Origin: http://a\r\n")},
                                                          {408, "GET / HT"},
                                                          {413, post("/", std::string(11, 'b'))},
                                                          {431, get("/", "A: " + std::string(2000, 'a') + "\r\n")},
                                                          {417, get("/", "Expect: more\r\n")},
                                                          {204, "OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n"}}) {
    EXPECT_EQ(server.ask(request).status, status);
    EXPECT_THAT(told.take(), ElementsAre(status));
  }
}

TEST(HttpOwnAnswers, ExcludeTheHandlersAnswers) {
  Told told;
  TestServer throwing([](const HttpExchange&) { throw std::runtime_error("on purpose"); }, told.options());
  EXPECT_EQ(throwing.ask(get("/")).status, 500);
  EXPECT_THAT(told.take(), ElementsAre(500));

  Held held;
  TestServer silent(held.handler(/*stream=*/false), told.options());
  Client client = silent.connect();
  client.send(get("/"));
  EXPECT_TRUE(eventually([&] { return held.taken == 1; }));
  silent.http->stop({});
  EXPECT_EQ(client.read_reply().status, 503);
  EXPECT_THAT(told.take(), ElementsAre(503));
}

TEST(HttpOwnAnswers, ARefusalOfHeadHasNoBody) {
  TestServer server;
  Client client = server.connect();
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\r\n\r\n");
  EXPECT_EQ(client.read_reply(/*head_only=*/true).status, 403);
  EXPECT_EQ(client.read_to_end(), "");
}

}  // namespace
}  // namespace tessera::testing
