// Catches: a state that is not JSON or lacks data that the page draws; replays that are counted for the wrong size or
// runner; latencies that are reported before any were measured; and a page that is incomplete or is sent without its
// content security policy.
#include "tessera/server/report/engine_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/device/testing/environment.h"
#include "tessera/server/page.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EngineStateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options{.model_path = testing::source_path("models/demo"), .device = testing::test_device_name()};
    options.context_length = 256;
    options.max_running_requests = 4;
    options.random_seed = 1;
    options.graphs.piecewise_tokens = {16, 64};
    options.graphs.decode_batches = {1, 4};
    Result<std::unique_ptr<Engine>> engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = (*std::move(engine)).release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  static Engine& engine() { return *engine_; }

  static Json state(const ServerLatencies& latencies = {}, const DraftStats& drafts = {}) {
    ServedModel model;
    model.name = "demo \"quoted\"";
    EngineStats stats = engine().stats();
    stats.drafts = drafts;
    Result<Json> json = Json::parse(EngineState(engine(), model).body(stats, latencies), "state");
    EXPECT_TRUE(json.ok()) << json.status().to_string();
    return json.ok() ? *std::move(json) : Json::object();
  }

 private:
  static inline Engine* engine_ = nullptr;
};

std::int64_t count_at(const Json& runner, std::int64_t size, const char* what = "count") {
  for (const Json& entry : runner.find("sizes")->as_array()) {
    if (entry.find("size")->as_int() == size) return entry.find(what)->as_int();
  }
  return -1;
}

TEST_F(EngineStateTest, HasTheTokensOfAForwardWithDrafts) {
  EXPECT_EQ(state().find("totals")->find("tokens_per_draft_forward"), nullptr);
  DraftStats drafts;
  drafts.add(3, 3);
  drafts.add(3, 0);
  EXPECT_EQ(state({}, drafts).find("totals")->find("tokens_per_draft_forward")->as_double(), 2.5);
}

TEST_F(EngineStateTest, GroupsCoverAllPartsOfTheForward) {
  const Json json = state();
  const Json& prefill = *json.find("prefill");
  std::int64_t pieces = 0;
  std::int64_t split_ops = 0;
  for (const Json& group : prefill.find("groups")->as_array()) {
    for (const Json& part : group.find("parts")->as_array()) {
      const bool split = part.find("kind")->as_string() == "split_op";
      (split ? split_ops : pieces) += group.find("repeats")->as_int();
      EXPECT_FALSE(part.find("ops")->as_array().empty());
    }
  }
  EXPECT_EQ(pieces, prefill.find("pieces")->as_int());
  EXPECT_EQ(split_ops, prefill.find("split_ops")->as_int());
  EXPECT_EQ(split_ops, json.find("model")->find("layers")->as_int());
  EXPECT_LE(prefill.find("groups")->as_array().size(), 3U);
  EXPECT_EQ(json.find("model")->find("name")->as_string(), "demo \"quoted\"");
  EXPECT_FALSE(json.find("model")->find("chat")->as_bool());
}

TEST_F(EngineStateTest, ReplaysAreCountedAtTheirSize) {
  const Json before = state();
  const Request request{.prompt = std::vector<TokenId>(10, TokenId(5)),
                        .stop = {.max_new_tokens = 8, .ignore_eos = true}};
  ASSERT_TRUE(engine().run({&request, 1}).ok());
  const Json after = state();
  EXPECT_EQ(count_at(*after.find("prefill"), 16), count_at(*before.find("prefill"), 16) + 1);
  EXPECT_EQ(count_at(*after.find("prefill"), 16, "padded"), count_at(*before.find("prefill"), 16, "padded") + 6);
  EXPECT_EQ(count_at(*after.find("prefill"), 64), count_at(*before.find("prefill"), 64));
  EXPECT_GE(count_at(*after.find("decode"), 1), count_at(*before.find("decode"), 1) + 7);
  EXPECT_EQ(count_at(*after.find("decode"), 4), count_at(*before.find("decode"), 4));
  std::int64_t forwards = 0;
  for (const Json& reason : after.find("reasons")->as_array()) {
    const std::string& name = reason.find("name")->as_string();
    EXPECT_EQ(reason.find("replayed")->as_bool(),
              name == "exact_size" || name == "padded_to_size" || name == "full_costs_less")
        << name;
    forwards += reason.find("count")->as_int();
  }
  EXPECT_GE(forwards, 8);
  EXPECT_EQ(
      after.find("totals")->find("output_tokens")->as_int() - before.find("totals")->find("output_tokens")->as_int(),
      8);
}

// Captured sizes may change after the state object was created.
TEST_F(EngineStateTest, ShowsTheCurrentSizes) {
  ServedModel model;
  const EngineState made(engine(), model);
  EngineStats stats = engine().stats();
  GraphInventory graphs = *stats.graphs;
  graphs.prefill.captured = {16, 32};
  graphs.prefill.pending = {64};
  graphs.decode.dropped = {{4, "no \"room\""}};
  graphs.memory.set(MemoryUse::kArena, 12345);
  stats.graphs = std::make_shared<GraphInventory>(graphs);
  const Result<Json> json = Json::parse(made.body(stats, {}), "state");
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  EXPECT_EQ(count_at(*json->find("prefill"), 32), 0);
  EXPECT_EQ(count_at(*json->find("prefill"), 64), -1);
  EXPECT_EQ(json->find("prefill")->find("to_come")->dump(), "[64]");
  EXPECT_EQ(json->find("decode")->find("dropped")->dump(), R"([{"size": 4, "why": "no \"room\""}])");
  EXPECT_TRUE(json->find("decode")->find("enabled")->as_bool());
  EXPECT_EQ(json->find("memory")->as_array()[2].find("bytes")->as_int(), 12345);
}

TEST(EngineStateOfATower, ForwardsAreCountedByTheirReason) {
  EngineOptions options{.model_path = testing::data_path("goldens/qwen3-vl"), .device = testing::test_device_name()};
  options.max_running_requests = 2;
  options.graphs.piecewise_tokens = {16};
  options.graphs.decode_batches = {1};
  const Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EngineStats stats = (*engine)->stats();
  ASSERT_TRUE(stats.graphs->vision);
  TowerCounts& counts = stats.images.by_reason;
  counts.add({.images = 2, .patches = 100, .how = {.size = 128, .graph = true, .reason = VisionReason::kReplayed}});
  counts.add({.images = 1, .patches = 300, .how = {.size = 304, .reason = VisionReason::kTooLarge}});
  counts.add({.images = 1, .patches = 200, .how = {.size = 208, .reason = VisionReason::kTooLarge}});
  const Result<Json> json = Json::parse(EngineState(**engine, ServedModel()).body(stats, {}), "state");
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  const Json::Array& reasons = json->find("vision_reasons")->as_array();
  ASSERT_EQ(reasons.size(), static_cast<std::size_t>(kNumVisionReasons));
  for (const Json& reason : reasons) {
    const std::string& name = reason.find("name")->as_string();
    const bool replayed = name == vision_reason_name(VisionReason::kReplayed);
    const bool too_large = name == vision_reason_name(VisionReason::kTooLarge);
    EXPECT_EQ(reason.find("count")->as_int(), replayed ? 1 : too_large ? 2 : 0) << name;
    EXPECT_EQ(reason.find("replayed")->as_bool(), replayed || name == vision_reason_name(VisionReason::kFirstUse));
    EXPECT_FALSE(reason.find("text")->as_string().empty()) << name;
  }
}

TEST_F(EngineStateTest, LatenciesAreNullUntilThereAreSome) {
  EXPECT_TRUE(state().find("latency")->find("first_token")->find("p50")->is_null());
  ServerLatencies latencies;
  latencies.first_token = {.count = 3, .p50 = 0.25, .p90 = 0.5, .p99 = 0.5, .max = 0.5};
  const Json json = state(latencies);
  EXPECT_EQ(json.find("latency")->find("first_token")->find("p50")->as_double(), 0.25);
  EXPECT_EQ(json.find("latency")->find("first_token")->find("count")->as_int(), 3);
  EXPECT_TRUE(json.find("latency")->find("request")->find("max")->is_null());
}

TEST_F(EngineStateTest, MemoryIsTheEnginesReport) {
  const Json json = state();
  std::set<std::string> kinds;
  for (const Json& entry : json.find("memory")->as_array()) {
    kinds.insert(entry.find("kind")->as_string());
    if (entry.find("kind")->as_string() == "weights") {
      EXPECT_EQ(entry.find("bytes")->as_int(), engine().runner().memory()[MemoryUse::kWeights]);
    }
  }
  EXPECT_EQ(kinds.size(), 8U);
}

TEST(Page, IsCompleteAndHasItsSecurityPolicy) {
  const HttpResponse response = page_response();
  EXPECT_EQ(response.content_type, "text/html; charset=utf-8");
  EXPECT_LT(response.body.size(), 150'000U);
  EXPECT_TRUE(response.body.starts_with("<!doctype html>"));
  EXPECT_TRUE(response.body.ends_with("</html>\n"));
  EXPECT_THAT(response.body, Not(HasSubstr("{{")));
  ASSERT_EQ(response.headers[0].first, "Content-Security-Policy");
  const std::string& policy = response.headers[0].second;
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  const std::size_t at = policy.find("script-src 'nonce-") + std::string_view("script-src 'nonce-").size();
  const std::string nonce = policy.substr(at, policy.find('\'', at) - at);
  EXPECT_EQ(nonce.size(), 32U);
  EXPECT_THAT(response.body, HasSubstr("<script nonce=\"" + nonce + "\">"));
  EXPECT_THAT(response.body, HasSubstr("<style nonce=\"" + nonce + "\">"));
  EXPECT_NE(page_response().body, response.body) << "each answer has a nonce of its own";
}

}  // namespace
}  // namespace tessera
