// Catches: bodies that are read before the head was checked; connections on which the rest of a body is read as a
// request; bodies that are not charged to the memory budget; and charges that are not released.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/http/http_test_util.h"
#include "tessera/server/memory_budget.h"

namespace tessera {
namespace {

using testing::Client;
using testing::echo;
using testing::eventually;
using testing::get;
using ::testing::HasSubstr;
using testing::post;
using testing::Reply;
using testing::TestServer;

HttpOptions without_secret() {
  HttpOptions options;
  options.check_head = [](const HttpRequest& head) -> std::optional<HttpResponse> {
    if (head.path != "/secret") return std::nullopt;
    EXPECT_TRUE(head.body.empty());
    return HttpResponse{.status = 401, .body = head.has_body ? "body" : "none", .headers = {}};
  };
  return options;
}

constexpr std::int64_t kBudget = 1'000'000;

HttpOptions charged_to(MemoryBudget& budget) {
  HttpOptions options;
  options.memory = &budget;
  return options;
}

std::string head_of(std::string_view target, std::size_t length) {
  return "POST " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(length) +
         "\r\n\r\n";
}

TEST(HttpHead, IsAnsweredBeforeTheBodyArrives) {
  const TestServer server(echo, without_secret());
  Client client = server.connect();
  const Reply reply = client.ask(head_of("/secret", 30'000'000));
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(reply.body, "body");
  EXPECT_TRUE(reply.has_line("Connection: close"));
  EXPECT_EQ(Client(server.port()).ask(post("/open", "x")).body, "POST /open? x");
}

TEST(HttpHead, ARefusedHeadAsksForNoBody) {
  const TestServer server(echo, without_secret());
  Client client = server.connect();
  const Reply reply =
      client.ask("POST /secret HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(reply.status, 401) << "and not 100";
}

TEST(HttpHead, TheConnectionContinuesAfterACompleteBody) {
  const TestServer server(echo, without_secret());
  Client client = server.connect();
  EXPECT_EQ(client.ask(get("/secret")).body, "none");
  client.send(post("/secret", "GET / HTTP/1.1\r\n\r\n") + get("/open"));
  EXPECT_EQ(client.read_reply().status, 401);
  EXPECT_EQ(client.read_reply().body, "GET /open? ");
}

TEST(HttpMemory, BodiesAreChargedUntilTheirAnswer) {
  MemoryBudget budget(kBudget);
  std::atomic<std::int64_t> used = 0;
  const TestServer server(
      [&](const HttpExchange& exchange) {
        used = budget.used();
        echo(exchange);
      },
      charged_to(budget));
  EXPECT_EQ(Client(server.port()).ask(post("/", std::string(300'000, 'x'))).status, 200);
  EXPECT_GE(used, 300'000);
  EXPECT_TRUE(eventually([&] { return budget.used() == 0; }));
}

TEST(HttpMemory, BodiesAboveTheBudgetAre413ByTheHead) {
  MemoryBudget budget(kBudget);
  const TestServer server(echo, charged_to(budget));
  const Reply reply = Client(server.port()).ask(head_of("/", kBudget + 1));
  EXPECT_EQ(reply.status, 413);
  EXPECT_THAT(reply.body, HasSubstr("937500")) << "all but the sixteenth that small requests have alone";
}

TEST(HttpMemory, BodiesBesideOtherChargesAreRefusedWith503) {
  MemoryBudget budget(kBudget);
  const TestServer server(echo, charged_to(budget));
  Client slow = server.connect();
  slow.send(head_of("/", 700'000) + std::string(600'000, 'x'));
  ASSERT_TRUE(eventually([&] { return budget.used() >= 600'000; }));
  const Reply reply = Client(server.port()).ask(head_of("/", 500'000));
  EXPECT_EQ(reply.status, 503);
  EXPECT_TRUE(reply.has_line("Retry-After: 1")) << reply.head;
  EXPECT_EQ(Client(server.port()).ask(get("/")).status, 200) << "what has no body needs no memory";
  slow.abort();
  EXPECT_TRUE(eventually([&] { return budget.used() == 0; }));
}

// The request has no Content-Length, so the server learns the body's length only as the chunks arrive.
TEST(HttpMemory, ChunkedBodiesAreChargedAsTheyArrive) {
  MemoryBudget budget(kBudget);
  const TestServer server(echo, charged_to(budget));
  Client client = server.connect();
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(65'536, 'x') + "\r\n";
  for (int i = 0; i < 30 && client.send(chunk); ++i) {
  }
  EXPECT_EQ(client.read_reply().status, 413);
  EXPECT_LE(budget.used(), kBudget);
}

}  // namespace
}  // namespace tessera
