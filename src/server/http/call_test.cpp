// Catches: memory for compressing an answer that is charged without need, or held after its client has left.
#include "tessera/server/http/call.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tessera/server/http/bodies/body_encoder.h"
#include "tessera/server/http/http_test_util.h"
#include "tessera/server/memory_budget.h"

namespace tessera::testing {
namespace {

constexpr std::string_view kAccepts = "Accept-Encoding: zstd\r\n";

std::string random_bytes(std::size_t count) {
  std::mt19937 random(1);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A server that answers every call with the body.
struct Answering {
  explicit Answering(std::string its_body) : body(std::move(its_body)) {}

  const std::string body;
  MemoryBudget budget{std::int64_t{64} << 20};
  ServerMetrics metrics{MetricsStyle::kSglang, "demo"};
  TestServer server{[this](HttpExchange exchange) {
                      Call(std::move(exchange), "/test", metrics, /*logged=*/false).respond({.body = body});
                    },
                    {.memory = &budget}};
};

TEST(Call, ChargesAnEncoderOnlyForALongBody) {
  for (const std::size_t bytes : {std::size_t{64} << 10, (std::size_t{64} << 10) + 1}) {
    Answering answering(std::string(bytes, 'a'));
    const Reply reply = answering.server.ask(get("/", kAccepts));
    EXPECT_TRUE(reply.has_line("Content-Encoding: zstd")) << reply.head;
    EXPECT_LT(reply.body.size(), bytes / 2);
    EXPECT_EQ(answering.budget.charged() > 0, bytes > std::size_t{64} << 10) << bytes;
    EXPECT_TRUE(eventually([&] { return answering.budget.used() == 0; }));
  }
}

TEST(Call, AHeadCompressesNothing) {
  Answering answering(std::string(std::size_t{1} << 20, 'a'));
  Client client = answering.server.connect();
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n" + std::string(kAccepts) + "\r\n");
  const Reply head = client.read_reply(/*head_only=*/true);
  EXPECT_TRUE(head.has_line("Content-Encoding: zstd")) << head.head;
  EXPECT_EQ(answering.budget.charged(), 0);
  EXPECT_EQ(client.ask(get("/")).body, answering.body) << "the next request on the same connection";
}

TEST(Call, AClientThatLeavesBetweenPartsHoldsNoMemory) {
  Answering answering(random_bytes(std::size_t{24} << 20));
  Client client(answering.server.port(), "127.0.0.1", /*receive_buffer=*/64 << 10);
  client.send(get("/", kAccepts));
  EXPECT_NE(client.read_through("\r\n\r\n"), "");
  EXPECT_GE(answering.budget.used(), static_cast<std::int64_t>(kEncoderBytes)) << "parts are left";
  client.abort();
  EXPECT_TRUE(eventually([&] { return answering.budget.used() == 0; }));
}

}  // namespace
}  // namespace tessera::testing
