// Catches: a call that gets no answer because a pool is full; work for a client that has left; a body that is read in
// the pool of small texts although it needs another pool; and one client that counts as several clients because of a
// header or because it has many addresses.
#include "tessera/server/work/text_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/histogram.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tessera/server/http/client_of.h"
#include "tessera/server/http/http_test_util.h"
#include "tessera/server/test_model.h"
#include "tessera/server/work/request_reader.h"

namespace tessera {
namespace {

using testing::Client;
using ::testing::ElementsAre;
using testing::eventually;
using testing::get;
using ::testing::HasSubstr;
using testing::Reply;

// A server with the test's handler.
class Pools {
 public:
  explicit Pools(std::function<void(TextPools& pools, const Call& call)> handler)
      : server_([this, handler = std::move(handler)](HttpExchange exchange) {
          handler(*pools_, Call(std::move(exchange), "/test", metrics_, /*logged=*/false));
          ++handled;
        }) {
    pools_.emplace(TextPoolsOptions{.cores = 1}, keys_);
  }

  TextPool::Stats stats(TextWork work) const { return pools_->all()[static_cast<std::size_t>(work)]->stats(); }
  std::string metrics_text() const { return pool_metrics(*pools_); }
  TextPools& all() { return *pools_; }
  HttpServer& http() { return *server_.http; }
  // Returns how many jobs each pool began: small, large, images, grammars, answers.
  std::vector<std::uint64_t> begun() const {
    std::vector<std::uint64_t> counts;
    for (const auto& pool : pools_->all()) counts.push_back(pool->waits().Collect().histogram.sample_count);
    return counts;
  }

  std::atomic<int> handled = 0;

 private:
  std::vector<std::string> keys_;
  ServerMetrics metrics_{MetricsStyle::kSglang, "demo"};
  testing::TestServer server_;
  std::optional<TextPools> pools_;

 public:
  Client connect() const { return server_.connect(); }
};

// Jobs that run until the test releases them.
struct Gate {
  std::promise<void> open;
  std::shared_future<void> opened = open.get_future().share();
  std::atomic<int> ran = 0;
};

TEST(TextPools, AClientThatLeavesGetsNoWork) {
  Gate gate;
  Pools pools([&](TextPools& all, const Call& call) {
    all.post(TextWork::kGrammars, call, [&gate] {
      gate.opened.wait();
      ++gate.ran;
    });
  });
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(pools.connect());
    clients.back().send(get("/"));
    EXPECT_TRUE(eventually([&] { return pools.handled == i + 1; }));
  }
  EXPECT_TRUE(eventually([&] { return pools.stats(TextWork::kGrammars).running == 1; }));
  EXPECT_EQ(pools.stats(TextWork::kGrammars).waiting, 2u);
  clients[1].abort();
  EXPECT_TRUE(eventually([&] { return pools.stats(TextWork::kGrammars).waiting == 1; }));
  gate.open.set_value();
  EXPECT_TRUE(eventually([&] { return pools.stats(TextWork::kGrammars).running == 0; }));
  EXPECT_EQ(gate.ran, 2);
}

TEST(TextPools, AFullPoolAnswers503WithRetryAfter) {
  Gate gate;
  Pools pools([&](TextPools& all, const Call& call) {
    for (std::size_t i = 0; i <= TextPools::kMostOthers + 1; ++i)
      all.post(TextWork::kAnswers, call, [&gate] { gate.opened.wait(); });
  });
  Client client = pools.connect();
  const Reply reply = client.ask(get("/"));
  EXPECT_EQ(reply.status, 503);
  EXPECT_TRUE(reply.has_line("Retry-After: 1")) << reply.head;
  EXPECT_THAT(reply.body, HasSubstr("pool \\\"answers\\\""));
  EXPECT_GE(pools.stats(TextWork::kAnswers).refused, 1u);
  EXPECT_THAT(pools.metrics_text(), HasSubstr("tessera:text_jobs_refused_total{pool=\"answers\"} "));
  EXPECT_THAT(pools.metrics_text(), HasSubstr("tessera:text_jobs_waiting{pool=\"answers\"} 102"));
  EXPECT_THAT(pools.metrics_text(), HasSubstr("tessera:text_job_wait_seconds_count{pool=\"small\"} 0"));
  gate.open.set_value();
}

// Reads a body whose first word names the kind of work that it needs. Returns its first 8 bytes.
ApiResult<std::string> read_anywhere(const ServedModel&, std::string_view body) {
  if (body.starts_with("image")) TRY(take_on(TextWork::kImages));
  if (body.starts_with("grammar")) TRY(take_on(TextWork::kGrammars));
  if (body.starts_with("template")) TRY(take_on(TextWork::kLarge));
  for (int i = 0; body.starts_with("many") && i < 3; ++i) TRY(take_on_text(kSmallTextBytes / 2));
  if (body.starts_with("all")) {
    TRY(take_on(TextWork::kImages));
    TRY(take_on(TextWork::kGrammars));
  }
  return std::string(body.substr(0, 8));
}

// Returns how many jobs begin in each pool while a request with this body is read: small, large, images, grammars,
// answers.
std::vector<std::uint64_t> begun_for(const std::string& body, const std::string& headers = "") {
  const ServedModel model = test::test_model();
  std::optional<RequestReader> reader;
  Pools pools([&](TextPools&, Call call) {
    reader->read<std::string>(std::move(call), read_anywhere, [](const Call& done, ApiResult<std::string> made) {
      if (!made.ok()) return done.refuse(made.error());
      done.respond_json(*std::move(made));
    });
  });
  reader.emplace(model, std::size_t{1} << 20, pools.all(), pools.http());
  Client client = pools.connect();
  const Reply reply = client.ask("POST / HTTP/1.1\r\nHost: localhost\r\n" + headers +
                                 "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  return pools.begun();
}

TEST(RequestReader, BodiesAreReadInThePoolForTheirWork) {
  EXPECT_THAT(begun_for("text"), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(begun_for(std::string(kSmallTextBytes + 1, 'a')), ElementsAre(0, 1, 0, 0, 0));
  EXPECT_THAT(begun_for("many texts"), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(begun_for("template"), ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(begun_for("image"), ElementsAre(1, 0, 1, 0, 0));
  EXPECT_THAT(begun_for("image" + std::string(kSmallTextBytes, 'a')), ElementsAre(0, 1, 1, 0, 0));
  EXPECT_THAT(begun_for("grammar"), ElementsAre(1, 0, 0, 1, 0));
  EXPECT_THAT(begun_for("all"), ElementsAre(1, 0, 1, 0, 0)) << "once there, it stays";
}

TEST(RequestReader, ACompressedBodyIsInflatedOnceAmongLargeTexts) {
  const std::string image(
      "\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00"
      "image",
      14);  // one raw block of 5 bytes
  EXPECT_THAT(begun_for(image, "Content-Encoding: zstd\r\n"), ElementsAre(0, 1, 1, 0, 0));
}

TEST(TextWork, AThreadWithoutAScopeAcceptsAllWork) {
  for (const TextWork work : {TextWork::kLarge, TextWork::kImages, TextWork::kGrammars})
    EXPECT_TRUE(take_on(work).ok());
  EXPECT_TRUE(take_on_text(10 * kSmallTextBytes).ok());
}

TEST(TextWork, TextsOfOneRequestAreCountedTogether) {
  TextPoolScope scope(TextWork::kSmall);
  EXPECT_TRUE(take_on_text(kSmallTextBytes).ok());
  EXPECT_FALSE(scope.moves_to());
  EXPECT_FALSE(take_on_text(1).ok());
  EXPECT_EQ(scope.moves_to(), TextWork::kLarge);
}

TEST(ClientOf, EachOfSeveralKeysIsAClient) {
  HttpRequest request;
  request.peer = "192.0.2.1";
  request.headers = {{"Authorization", "bEaRer two"}};
  EXPECT_EQ(client_of(request, std::vector<std::string>{"one", "two"}), "two") << "however the scheme is written";
  EXPECT_EQ(client_of(request, std::vector<std::string>{"two"}), "192.0.2.1") << "all have that key";
  EXPECT_EQ(client_of(request, {}), "192.0.2.1");
  request.headers = {{"X-Api-Key", "one"}};
  EXPECT_EQ(client_of(request, std::vector<std::string>{"one", "two"}), "one") << "as Anthropic's clients send it";
  request.headers.emplace_back("Authorization", "Bearer fresh");
  EXPECT_EQ(client_of(request, std::vector<std::string>{"one", "two"}), "one") << "only the valid key names a client";
  request.headers = {{"Authorization", "Bearer admin"}};
  EXPECT_EQ(client_of(request, std::vector<std::string>{"one", "two"}), "192.0.2.1") << "an administrator's key";
}

TEST(OwnerOf, EveryKeyOwnsItsOwnThings) {
  const auto owner = [](const std::string& key, const std::vector<std::string>& keys) {
    HttpRequest request;
    if (!key.empty()) request.headers = {{"Authorization", "Bearer " + key}};
    return owner_of(request, keys);
  };
  const std::string client = owner("client", {"client", "admin"});
  EXPECT_EQ(client.size(), 64U) << "a digest, so that no key is stored";
  EXPECT_EQ(owner("client", {"client"}), client) << "whatever other keys there are";
  EXPECT_NE(owner("admin", {"client", "admin"}), client);
  EXPECT_EQ(owner("", {"admin", "other"}), "") << "administrators' keys alone leave most routes open";
  EXPECT_EQ(owner("unknown", {"admin", "other"}), "");
  EXPECT_EQ(owner("unknown", {}), "");
  EXPECT_EQ(owner_of_unnamed(std::vector<std::string>{"client"}), client);
  EXPECT_EQ(owner_of_unnamed(std::vector<std::string>{"client", "other"}), "");
  EXPECT_EQ(owner_of_unnamed({}), "");
}

}  // namespace
}  // namespace tessera
