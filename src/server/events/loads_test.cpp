// Catches: loads that gateways cannot read; numbers that do not mean what their names say; and wrong queries that are
// answered without an error.
#include "tessera/server/events/loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/server/metrics/metrics.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

EngineStats busy() {
  GraphInventory graphs;
  graphs.memory.set(MemoryUse::kWeights, 2'000'000'000);
  graphs.memory.set(MemoryUse::kKvCache, 500'000'000);
  EngineStats stats{.running = 3, .queued = 2, .queued_tokens = 100, .num_cache_groups = 2, .page_size = 16};
  stats.cache_groups[0] = {.used_pages = 10, .usable_pages = 40};
  stats.cache_groups[1] = {.used_pages = 1, .usable_pages = 80};
  stats.prompt_tokens = 1000;
  stats.cached_tokens = 250;
  stats.graphs = std::make_shared<GraphInventory>(std::move(graphs));
  return stats;
}

LoadReport report() { return LoadReport({.accelerator = "A", .num_accelerators = 2, .max_running_requests = 12}); }

Json loads_of(LoadReport& report, std::string_view query, const std::vector<EngineStats>& stats,
              LoadReport::Clock::time_point now = {}) {
  ApiResult<HttpResponse> response = report.answer(query, stats, now);
  EXPECT_TRUE(response.ok());
  return *Json::parse(response->body, "loads");
}

TEST(Loads, EachEngineHasItsNumbersUnderSglangsNames) {
  LoadReport loads = report();
  const Json answer = loads_of(loads, "include=core", {busy(), EngineStats{}});
  EXPECT_EQ(answer.find("accelerator")->as_string(), "A");
  EXPECT_EQ(answer.find("num_accelerators")->as_int(), 2);
  EXPECT_THAT(answer.find("timestamp")->as_string(), ::testing::MatchesRegex("20..-..-..T..:..:..\\.......Z"));
  ASSERT_EQ(answer.find("loads")->as_array().size(), 2u);
  EXPECT_EQ(answer.find("loads")->as_array()[0].dump(),
            R"({"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 2, "num_waiting_uncached_tokens": 75, )"
            R"("num_used_tokens": 160, "num_total_tokens": 260, "max_total_num_tokens": 640, )"
            R"("max_running_requests": 12, "token_usage": 0.25, "gen_throughput": 0, "cache_hit_rate": 0.25, )"
            R"("utilization": 0.25})");
  EXPECT_EQ(answer.find("loads")->as_array()[1].find("dp_rank")->as_int(), 1);
}

TEST(Loads, SectionsAndRanksAreChosenByTheQuery) {
  LoadReport loads = report();
  const auto first = [&](std::string_view query) {
    return loads_of(loads, query, {busy(), busy()}).find("loads")->as_array()[0];
  };
  const Json all = first("");
  EXPECT_EQ(all.find("memory")->dump(),
            R"({"weight_gb": 2, "kv_cache_gb": 0.5, "graph_gb": 0, "token_capacity": 640})");
  EXPECT_EQ(all.find("disaggregation")->dump(), R"({"mode": "null"})");
  EXPECT_EQ(all.find("queues")->find("waiting")->as_int(), 2);
  EXPECT_EQ(all.find("speculative"), nullptr) << "nothing was drafted";
  const Json queues = first("include=core%2Cqueues,%20disagg&dp_rank=1");
  EXPECT_EQ(queues.find("dp_rank")->as_int(), 1);
  EXPECT_EQ(queues.find("memory"), nullptr);
  EXPECT_NE(queues.find("disaggregation"), nullptr);
}

TEST(Loads, PrometheusHasTheSameNumbers) {
  LoadReport loads = report();
  ApiResult<HttpResponse> response = loads.answer("format=prometheus", std::vector<EngineStats>{busy(), busy()});
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->content_type, kMetricsContentType);
  EXPECT_THAT(response->body, AllOf(HasSubstr("# TYPE sglang_num_running_reqs gauge\n"
                                              "sglang_num_running_reqs{dp_rank=\"0\"} 3\n"
                                              "sglang_num_running_reqs{dp_rank=\"1\"} 3\n"),
                                    HasSubstr("sglang_queues_waiting{dp_rank=\"1\"} 2\n"), Not(HasSubstr("disagg"))));
}

TEST(Loads, ThroughputIsMeasuredOverAtLeastASecond) {
  LoadReport loads = report();
  EngineStats stats = busy();
  const LoadReport::Clock::time_point begin{};
  const auto throughput = [&](std::int64_t tokens, int ms) {
    stats.output_tokens = tokens;
    return loads_of(loads, "", {stats}, begin + std::chrono::milliseconds(ms))
        .find("loads")
        ->as_array()[0]
        .find("gen_throughput")
        ->as_double();
  };
  EXPECT_EQ(throughput(100, 0), 0);
  EXPECT_EQ(throughput(150, 500), 0);
  EXPECT_EQ(throughput(300, 2000), 100);
  EXPECT_EQ(throughput(900, 2500), 100) << "the last whole span's";
  EXPECT_EQ(throughput(900, 5000), 200);
}

TEST(Loads, MistakesInTheQueryAreNamed) {
  LoadReport loads = report();
  const auto error = [&](std::string_view query) {
    ApiResult<HttpResponse> response = loads.answer(query, std::vector<EngineStats>{busy()});
    return response.ok() ? "none" : response.error().message;
  };
  EXPECT_THAT(error("include=core,cores"), AllOf(HasSubstr("\"include\" is \"cores\""), HasSubstr("core, memory")));
  EXPECT_THAT(error("dp_rank=1"), HasSubstr("\"dp_rank\" is \"1\"; accepted: 0 to 0"));
  EXPECT_THAT(error("dp_rank=x"), HasSubstr("\"dp_rank\" is \"x\""));
  EXPECT_THAT(error("format=xml"), HasSubstr("\"format\" is \"xml\"; accepted: json or prometheus"));
  EXPECT_EQ(error("format=json&other=1"), "none");
}

TEST(Loads, TheShortFormCountsRequestsAndTokens) {
  EXPECT_EQ(LoadReport::short_body(std::vector<EngineStats>{busy()}),
            R"([{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":260}])");
}

// llm-d reads the page size and the number of pages from this gauge.
TEST(Loads, MetricsHaveTheCachesSizesInBothStyles) {
  const MemoryBudget memory(1 << 20);
  const std::vector<EngineStats> stats = {busy()};
  ServerMetrics sglang(MetricsStyle::kSglang, "m");
  EXPECT_THAT(sglang.scrape(stats, memory),
              HasSubstr("sglang:cache_config_info{model_name=\"m\",page_size=\"16\",num_pages=\"40\"} 1\n"));
  ServerMetrics vllm(MetricsStyle::kVllm, "m");
  EXPECT_THAT(
      vllm.scrape(stats, memory),
      HasSubstr("vllm:cache_config_info{model_name=\"m\",engine=\"0\",block_size=\"16\",num_gpu_blocks=\"40\"} 1\n"));
}

}  // namespace
}  // namespace tessera
