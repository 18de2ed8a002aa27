// Catches: metrics that dashboards do not find by name, that count the wrong thing, or that Prometheus cannot read.
#include "tessera/server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <vector>

#include "tessera/base/testing/paths.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/engine.h"

namespace tessera {
namespace {

using std::chrono::steady_clock;

std::shared_ptr<const GraphInventory> some_graphs() {
  using enum MemoryUse;
  GraphInventory graphs{.max_tokens = 512};
  for (const auto& [use, bytes] :
       {std::pair(kWeights, 1), std::pair(kKvCache, 2), std::pair(kArena, 3), std::pair(kWorkspace, 4),
        std::pair(kStaticInputs, 5), std::pair(kGraphObjects, 60), std::pair(kPlans, 7), std::pair(kStepResults, 8)})
    graphs.memory.set(use, bytes);
  graphs.memory.runners = {{.role = RunnerRole::kDecode, .sizes = {{.size = 8, .graphs = {.bytes = 60}}}}};
  graphs.predicted_memory.set(kArena, 30);
  graphs.predicted_memory.set(kGraphObjects, 61);
  graphs.prefill = {.pieces = 6,
                    .split_ops = 5,
                    .graphs = 12,
                    .general_compiles = 11,
                    .cached_programs = 2,
                    .shape_compiles = 3,
                    .captured = {64, 128},
                    .full = {128},
                    .pending = {4, 8, 16},
                    .dropped = {{256, "too large"}}};
  graphs.decode = {.pieces = 1, .graphs = 1, .shape_compiles = 1, .captured = {8}};
  graphs.vision = RunnerInventory{.pieces = 1, .graphs = 2, .captured = {64, 128}};
  return std::make_shared<GraphInventory>(std::move(graphs));
}

EngineStats idle_stats() {
  EngineStats stats;
  stats.graphs = some_graphs();
  return stats;
}

TowerCounts some_tower_forwards() {
  TowerCounts counts;
  for (int i = 0; i < 2; ++i)
    counts.add({.images = 2, .patches = 100, .how = {.size = 128, .graph = true, .reason = VisionReason::kReplayed}});
  for (int i = 0; i < 3; ++i)
    counts.add({.images = 1, .patches = 4200, .how = {.size = 4224, .reason = VisionReason::kTooLarge}});
  return counts;
}

EngineStats some_stats() {
  EngineStats stats{.running = 3, .queued = 2, .num_cache_groups = 1, .page_size = 16};
  stats.cache_groups[0] = {.used_pages = 10, .cached_pages = 5, .usable_pages = 40, .page_bytes = 512};
  stats.prompt_tokens = 1000;
  stats.cached_tokens = 250;
  stats.output_tokens = 500;
  stats.preemptions = 4;
  stats.steps = 77;
  stats.images = {.images = 7,
                  .image_tokens = 700,
                  .encoded = 4,
                  .cache_hits = 3,
                  .forwards = 5,
                  .graph_hits = 2,
                  .by_reason = some_tower_forwards(),
                  .tower_seconds = 0.25,
                  .cached_bytes = 4096};
  stats.split_chunks = 9;
  stats.profile_cache_hits = 2;
  for (int i = 0; i < 20; ++i)
    stats.forwards.add({RunnerKind::kDecode, 8, 2, Reason::kPaddedToSize}, 6, /*is_decode=*/true);
  stats.forwards.add({RunnerKind::kDecode, 8, 0, Reason::kExactSize}, 8, /*is_decode=*/true);
  for (int i = 0; i < 6; ++i)
    stats.forwards.add({RunnerKind::kPrefill, 128, 0, Reason::kExactSize}, 128, /*is_decode=*/false);
  stats.forwards.add({RunnerKind::kEager, 304, 0, Reason::kAboveLargestSize}, 304, /*is_decode=*/false);
  stats.graphs = some_graphs();
  return stats;
}

// Returns the samples of a scrape by their names and labels. Fails if a line is not a sample or comes before its TYPE.
std::map<std::string, double> samples(const std::string& text) {
  static const std::regex line_form(R"re(([a-zA-Z_:][\w:]*)(\{([a-zA-Z_]\w*="([^"\\]|\\.)*",?)*\})? (\S+))re");
  std::map<std::string, double> found;
  std::istringstream lines(text);
  std::string type_of;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) type_of = line.substr(7, line.find(' ', 7) - 7);
    if (line.starts_with("#")) continue;
    std::smatch match;
    EXPECT_TRUE(std::regex_match(line, match, line_form)) << line;
    if (match.empty()) continue;
    EXPECT_TRUE(match[1].str().starts_with(type_of)) << line;
    EXPECT_TRUE(found.emplace(match[1].str() + match[2].str(), std::stod(match[5])).second) << "twice: " << line;
  }
  return found;
}

void observe_known(ServerMetrics& metrics) {
  metrics.first_token(0.3);
  metrics.next_token(0.005);
  metrics.next_token(0.05);
  metrics.ended({.seconds = 1.5,
                 .prompt_tokens = 120,
                 .output_tokens = 30,
                 .finish = FinishReason::kStop,
                 .queue_s = 0.25,
                 .first_token_s = 0.5,
                 .engine_s = 1.25});
  metrics.ended({.seconds = 0.7,
                 .prompt_tokens = 10,
                 .output_tokens = 3,
                 .finish = FinishReason::kLength,
                 .queue_s = 0,
                 .first_token_s = 0.125,
                 .engine_s = 0.625});
  metrics.ended({.seconds = 0.1, .prompt_tokens = 10, .output_tokens = 0, .finish = FinishReason::kCancelled});
  metrics.call_ended(30);
  metrics.call_ended(3);
  metrics.answered("/v1/completions", 200);
  metrics.answered("/v1/completions", 200);
  metrics.answered("/v1/completions", 429);
}

void expect_graphs(const std::map<std::string, double>& found) {
  const auto at = [&](const std::string& name, const std::string& runner) {
    return found.at("tessera:" + name + "{runner=\"" + runner + "\"}");
  };
  EXPECT_EQ(at("graph_pieces", "prefill"), 6);
  EXPECT_EQ(at("graph_split_ops", "prefill"), 5);
  EXPECT_EQ(at("captured_sizes", "prefill"), 2);
  EXPECT_EQ(at("full_sizes", "prefill"), 1);
  EXPECT_EQ(at("full_sizes", "decode"), 0);
  EXPECT_EQ(at("captured_graphs", "prefill"), 12);
  EXPECT_EQ(at("captured_graphs", "decode"), 1);
  EXPECT_EQ(at("sizes_to_come", "prefill"), 3);
  EXPECT_EQ(at("dropped_sizes", "prefill"), 1);
  EXPECT_EQ(at("dropped_sizes", "decode"), 0);
  EXPECT_EQ(at("general_compiles_total", "prefill"), 11);
  EXPECT_EQ(at("program_cache_hits_total", "prefill"), 2);
  EXPECT_EQ(at("shape_compiles_total", "prefill"), 3);
}

// Checks the buckets that the command "tessera explain --suggest-tokens" reads. Each bucket counts the forwards that
// have at most as many tokens as the bucket's limit.
void expect_token_histogram(const std::map<std::string, double>& found) {
  const auto at_most = [&](const std::string& tokens) {
    return found.at("tessera:prefill_tokens_bucket{le=\"" + tokens + "\"}");
  };
  EXPECT_EQ(at_most("120"), 0);
  EXPECT_EQ(at_most("128"), 6);
  EXPECT_EQ(at_most("288"), 6);
  EXPECT_EQ(at_most("320"), 7);
  EXPECT_EQ(at_most("512"), 7);
  EXPECT_FALSE(found.contains(R"(tessera:prefill_tokens_bucket{le="576"})")) << "more than a forward can have";
  EXPECT_EQ(at_most("+Inf"), 7);
  EXPECT_EQ(found.at("tessera:prefill_tokens_count"), 7);
  EXPECT_EQ(found.at("tessera:prefill_tokens_sum"), 6 * 128 + 304);
}

void expect_own(const std::map<std::string, double>& found) {
  expect_graphs(found);
  expect_token_histogram(found);
  EXPECT_EQ(found.at(R"(tessera:graph_replays_total{runner="decode",bucket="8",reason="padded_to_size"})"), 20);
  EXPECT_EQ(found.at(R"(tessera:graph_replays_total{runner="decode",bucket="8",reason="exact_size"})"), 1);
  EXPECT_EQ(found.at(R"(tessera:graph_replays_total{runner="prefill",bucket="128",reason="exact_size"})"), 6);
  EXPECT_FALSE(found.contains(R"(tessera:graph_replays_total{runner="eager",bucket="0",reason="above_largest_size"})"));
  EXPECT_EQ(found.at(R"(tessera:forwards_total{reason="padded_to_size"})"), 20);
  EXPECT_EQ(found.at(R"(tessera:forwards_total{reason="exact_size"})"), 7);
  EXPECT_EQ(found.at(R"(tessera:forwards_total{reason="above_largest_size"})"), 1);
  EXPECT_EQ(found.at(R"(tessera:forward_tokens_total{runner="eager"})"), 304);
  EXPECT_EQ(found.at(R"(tessera:forward_tokens_total{runner="prefill"})"), 768);
  EXPECT_EQ(found.at(R"(tessera:forward_tokens_total{runner="decode"})"), 128);
  EXPECT_NEAR(found.at("tessera:replayed_token_share"), 896.0 / 1200, 1e-9);
  EXPECT_EQ(found.at(R"(tessera:padded_tokens_total{runner="decode",bucket="8"})"), 40);
  EXPECT_EQ(found.at(R"(tessera:padded_tokens_total{runner="prefill",bucket="128"})"), 0);
  EXPECT_EQ(found.at("tessera:preemptions_total"), 4);
  EXPECT_EQ(found.at("tessera:split_chunks_total"), 9);
  EXPECT_EQ(found.at("tessera:profile_cache_hits_total"), 2);
  EXPECT_EQ(found.at("tessera:steps_total"), 77);
  EXPECT_EQ(found.at("tessera:images_total"), 7);
  EXPECT_EQ(found.at("tessera:image_tokens_total"), 700);
  EXPECT_EQ(found.at("tessera:image_cache_hits_total"), 3);
  EXPECT_EQ(found.at("tessera:tower_images_total"), 4);
  EXPECT_EQ(found.at(R"(tessera:tower_forwards_total{reason="above_largest_size"})"), 3);
  EXPECT_EQ(found.at(R"(tessera:tower_forwards_total{reason="replayed"})"), 2);
  EXPECT_EQ(found.at(R"(tessera:tower_graph_replays_total{bucket="128",reason="replayed"})"), 2);
  EXPECT_EQ(found.at(R"(tessera:tower_padded_patches_total{bucket="128",reason="replayed"})"), 56);
  EXPECT_EQ(found.at(R"(tessera:captured_sizes{runner="vision"})"), 2);
  EXPECT_EQ(found.at("tessera:tower_seconds_total"), 0.25);
  EXPECT_EQ(found.at("tessera:image_cache_bytes"), 4096);
  EXPECT_EQ(found.at("tessera:cached_pages"), 5);
  EXPECT_EQ(found.at(R"(tessera:kv_cache_bytes{group="0",state="used"})"), 10 * 512);
  EXPECT_EQ(found.at(R"(tessera:kv_cache_bytes{group="0",state="cached"})"), 5 * 512);
  EXPECT_EQ(found.at(R"(tessera:kv_cache_bytes{group="0",state="free"})"), 25 * 512);
  double bytes = 0;
  for (const char* kind : {"weights", "kv_cache", "arena", "workspace", "static_inputs", "attention", "graph_objects"})
    bytes += found.at(std::string("tessera:memory_bytes{kind=\"") + kind + "\"}");
  EXPECT_EQ(bytes, 82);
  EXPECT_EQ(found.at(R"(tessera:memory_predicted_bytes{kind="arena"})"), 30);
  EXPECT_EQ(found.at(R"(tessera:memory_predicted_bytes{kind="graph_objects"})"), 61);
  EXPECT_EQ(found.at(R"(tessera:graph_bytes{runner="decode",bucket="8"})"), 60);
  EXPECT_EQ(found.at(R"(tessera:http_requests_total{route="/v1/completions",status="200"})"), 2);
  EXPECT_EQ(found.at(R"(tessera:http_requests_total{route="/v1/completions",status="429"})"), 1);
}

EngineOptions small_demo() {
  EngineOptions options{.model_path = testing::source_path("models/demo"), .device = "cpu"};
  options.load_format = LoadFormat::kDummy;
  options.chunked_prefill_size = 64;
  options.graphs.piecewise_tokens = {16, 64};
  options.graphs.decode_batches = {1, 4};
  return options;
}

// Checks the counters of a real engine: sizes captured, dropped and replayed.
TEST(Metrics, GraphCountersAreThoseOfAnEngine) {
  const std::unique_ptr<Engine> made = *Engine::create(small_demo());
  Engine& engine = *made;
  ServerMetrics metrics(MetricsStyle::kSglang, "demo");
  const auto scrape = [&] { return samples(metrics.scrape(std::array{engine.stats()}, MemoryBudget(1000))); };
  std::map<std::string, double> found = scrape();
  const GraphRunner& prefill = engine.runner().prefill();
  EXPECT_EQ(found.at(R"(tessera:captured_sizes{runner="prefill"})"), 2);
  EXPECT_EQ(found.at(R"(tessera:captured_sizes{runner="decode"})"), 2);
  EXPECT_EQ(found.at(R"(tessera:captured_graphs{runner="prefill"})"), prefill.executable().num_graphs());
  EXPECT_EQ(found.at(R"(tessera:graph_pieces{runner="prefill"})"), prefill.executable().graph().num_pieces());
  EXPECT_EQ(found.at(R"(tessera:graph_split_ops{runner="prefill"})"), prefill.executable().graph().num_split_ops());
  EXPECT_EQ(found.count(R"(tessera:graph_replays_total{runner="prefill",bucket="16",reason="padded_to_size"})"), 0U);
  const double binds = found.at(R"(tessera:shape_compiles_total{runner="prefill"})");

  const Request request{.prompt = std::vector<TokenId>(10, TokenId(5)),
                        .stop = {.max_new_tokens = 3, .ignore_eos = true}};
  ASSERT_TRUE(engine.run({&request, 1}).ok());
  found = scrape();
  EXPECT_EQ(found.at(R"(tessera:graph_replays_total{runner="prefill",bucket="16",reason="padded_to_size"})"), 1);
  EXPECT_EQ(found.at(R"(tessera:graph_replays_total{runner="decode",bucket="1",reason="exact_size"})"), 2);
  EXPECT_EQ(found.at(R"(tessera:padded_tokens_total{runner="prefill",bucket="16"})"), 6);
  EXPECT_EQ(found.at(R"(tessera:forwards_total{reason="exact_size"})"), 2);
  EXPECT_EQ(found.at("tessera:replayed_token_share"), 1);
  EXPECT_EQ(found.at(R"(tessera:shape_compiles_total{runner="prefill"})"), binds) << "nothing was bound for it";
}

// Checks the counts of a first start, which compiles and captures, and of a second start, which reads the disk cache.
TEST(Metrics, CompilesAndCacheHitsAreCountedAcrossStarts) {
  const test::ScratchDir cache;
  EngineOptions options = small_demo();
  options.cache_dir = cache.path();
  options.graphs.compiler = "fused";
  const auto start = [&] {
    const std::unique_ptr<Engine> engine = *Engine::create(options);
    ServerMetrics metrics(MetricsStyle::kSglang, "demo");
    return samples(metrics.scrape(std::array{engine->stats()}, MemoryBudget(1000)));
  };
  const auto first = start(), second = start();
  for (const std::string runner : {"{runner=\"prefill\"}", "{runner=\"decode\"}"}) {
    const double compiled = first.at("tessera:general_compiles_total" + runner);
    EXPECT_GT(compiled, 0) << runner;
    EXPECT_EQ(first.at("tessera:program_cache_hits_total" + runner), 0) << runner;
    EXPECT_EQ(second.at("tessera:general_compiles_total" + runner), 0) << runner;
    EXPECT_EQ(second.at("tessera:program_cache_hits_total" + runner), compiled) << runner;
    EXPECT_EQ(first.at("tessera:captured_graphs" + runner), 2 * first.at("tessera:graph_pieces" + runner)) << runner;
  }
}

TEST(Metrics, HasSglangsNames) {
  ServerMetrics metrics(MetricsStyle::kSglang, "demo");
  observe_known(metrics);
  const auto found = samples(metrics.scrape(std::array{some_stats()}, MemoryBudget(1000)));
  const auto at = [&](const std::string& name) { return found.at("sglang:" + name + R"({model_name="demo"})"); };
  EXPECT_EQ(at("num_running_reqs"), 3);
  EXPECT_EQ(at("num_queue_reqs"), 2);
  EXPECT_EQ(at("token_usage"), 0.25);
  EXPECT_EQ(at("num_used_tokens"), 160);
  EXPECT_EQ(at("max_total_num_tokens"), 640);
  EXPECT_EQ(at("cache_hit_rate"), 0.25);
  EXPECT_GE(at("gen_throughput"), 0);
  EXPECT_EQ(at("prompt_tokens_total"), 1000);
  EXPECT_EQ(at("generation_tokens_total"), 500);
  EXPECT_EQ(at("cached_tokens_total"), 250);
  EXPECT_EQ(at("num_requests_total"), 3);
  EXPECT_EQ(at("num_aborted_requests_total"), 1);
  EXPECT_EQ(at("num_retracted_requests_total"), 4);
  EXPECT_EQ(at("time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(at("time_to_first_token_seconds_sum"), 0.3);
  EXPECT_EQ(at("inter_token_latency_seconds_count"), 2);
  EXPECT_EQ(at("e2e_request_latency_seconds_count"), 3);
  EXPECT_EQ(at("prompt_tokens_histogram_sum"), 140);
  EXPECT_EQ(at("generation_tokens_histogram_sum"), 33);
  EXPECT_EQ(at("queue_time_seconds_count"), 2) << "the third one was cancelled before its first token";
  EXPECT_EQ(at("queue_time_seconds_sum"), 0.25);
  const auto stage = [&](const std::string& part, const std::string& name) {
    return found.at("sglang:per_stage_req_latency_seconds_" + part + R"({model_name="demo",stage=")" + name + "\"}");
  };
  EXPECT_EQ(stage("sum", "prefill_forward"), 0.25 + 0.125);
  EXPECT_EQ(stage("sum", "decode_forward"), 0.75 + 0.5);
  EXPECT_EQ(stage("count", "decode_forward"), 2);
  const auto bucket = [&](const std::string& name, const std::string& le) {
    return found.at("sglang:" + name + R"(_bucket{model_name="demo",le=")" + le + "\"}");
  };
  EXPECT_EQ(bucket("time_to_first_token_seconds", "0.2"), 0);
  EXPECT_EQ(bucket("time_to_first_token_seconds", "0.4"), 1);
  EXPECT_EQ(bucket("inter_token_latency_seconds", "0.006"), 1);
  EXPECT_EQ(bucket("inter_token_latency_seconds", "+Inf"), 2);
  EXPECT_EQ(bucket("e2e_request_latency_seconds", "0.1"), 1);  // the bucket includes a value equal to its limit
  expect_own(found);
}

TEST(Metrics, HasVllmsNames) {
  ServerMetrics metrics(MetricsStyle::kVllm, "demo");
  observe_known(metrics);
  const auto found = samples(metrics.scrape(std::array{some_stats()}, MemoryBudget(1000)));
  const std::string labels = R"(model_name="demo",engine="0")";
  const auto at = [&](const std::string& name) { return found.at("vllm:" + name + "{" + labels + "}"); };
  EXPECT_EQ(at("num_requests_running"), 3);
  EXPECT_EQ(at("num_requests_waiting"), 2);
  EXPECT_EQ(at("kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(at("gpu_cache_usage_perc"), 0.25);
  EXPECT_EQ(at("request_queue_time_seconds_sum"), 0.25);
  EXPECT_EQ(at("request_prefill_time_seconds_sum"), 0.25 + 0.125);
  EXPECT_EQ(at("request_decode_time_seconds_sum"), 0.75 + 0.5);
  EXPECT_EQ(at("request_decode_time_seconds_count"), 2);
  EXPECT_EQ(at("request_max_num_generation_tokens_sum"), 33);
  EXPECT_EQ(at("request_max_num_generation_tokens_count"), 2);
  EXPECT_EQ(at("prefix_cache_queries_total"), 1000);
  EXPECT_EQ(at("prefix_cache_hits_total"), 250);
  EXPECT_EQ(at("prompt_tokens_total"), 1000);
  EXPECT_EQ(at("generation_tokens_total"), 500);
  EXPECT_EQ(at("num_preemptions_total"), 4);
  EXPECT_EQ(at("time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(at("inter_token_latency_seconds_count"), 2);
  EXPECT_EQ(at("time_per_output_token_seconds_count"), 2);
  EXPECT_EQ(at("e2e_request_latency_seconds_count"), 3);
  EXPECT_EQ(at("request_prompt_tokens_count"), 3);
  EXPECT_EQ(at("request_generation_tokens_sum"), 33);
  const auto ended = [&](const std::string& reason) {
    return found.at("vllm:request_success_total{" + labels + ",finished_reason=\"" + reason + "\"}");
  };
  EXPECT_EQ(ended("stop"), 1);
  EXPECT_EQ(ended("length"), 1);
  EXPECT_EQ(ended("abort"), 1);
  EXPECT_EQ(ended("error"), 0);
  EXPECT_EQ(found.at("vllm:time_to_first_token_seconds_bucket{" + labels + ",le=\"0.5\"}"), 1);
  expect_own(found);
}

TEST(Metrics, ThroughputIsMeasuredSinceTheLastScrape) {
  ServerMetrics metrics(MetricsStyle::kSglang, "demo");
  EngineStats stats = idle_stats();
  const auto start = steady_clock::now() + std::chrono::seconds(1);
  const auto scrape_at = [&](double seconds) {
    const auto now = start + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
    return samples(metrics.scrape({&stats, 1}, MemoryBudget(1000), now))
        .at(R"(sglang:gen_throughput{model_name="demo"})");
  };
  scrape_at(0);
  stats.output_tokens = 100;
  EXPECT_EQ(scrape_at(2), 50);
  stats.output_tokens = 101;
  EXPECT_EQ(scrape_at(2.01), 50);  // too early for a new value
  EXPECT_EQ(scrape_at(3), 1);
  EXPECT_EQ(scrape_at(4), 0);
}

TEST(Metrics, EscapesTheModelsName) {
  ServerMetrics metrics(MetricsStyle::kSglang, "a\"b\\c\nd");
  const auto found = samples(metrics.scrape(std::array{idle_stats()}, MemoryBudget(1000)));
  EXPECT_TRUE(found.contains(R"(sglang:num_running_reqs{model_name="a\"b\\c\nd"})"));
  EXPECT_EQ(found.at(R"(sglang:token_usage{model_name="a\"b\\c\nd"})"), 0);  // the demo has no pages
}

TEST(Metrics, ParsesTheNamesOfStyles) {
  EXPECT_EQ(*metrics_style("sglang"), MetricsStyle::kSglang);
  EXPECT_EQ(*metrics_style("vllm"), MetricsStyle::kVllm);
  EXPECT_THAT(metrics_style("statsd").status().message(), ::testing::HasSubstr("'statsd'"));
}

TEST(Metrics, AnObservationIsCheap) {
  ServerMetrics metrics(MetricsStyle::kSglang, "demo");
  const auto start = steady_clock::now();
  for (int i = 0; i < 256 * 100; ++i) metrics.next_token(0.01);
  const double us = std::chrono::duration<double, std::micro>(steady_clock::now() - start).count() / 100;
  RecordProperty("microseconds_for_256", std::to_string(us));
  EXPECT_LT(us, 2000);  // about 20 µs on an idle machine
}

}  // namespace
}  // namespace tessera
