// Catches: prompts that run without a graph although no reason for it applies (a chunk above the largest size, mixed
// batches, wanted log-probabilities); padding that takes too much of the time; lost requests; and a simulation whose
// token counts do not add up.
#include "tessera/engine/schedule/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>

#include "tessera/engine/plan/plan_ladders.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Returns prefill times of Qwen3-0.6B on an H200 in milliseconds. They are the measurements "Tessera piecewise" and
// "Tessera eager" of docs/measurements/prefill-decode.md.
CostTable h200_costs() {
  CostTable costs;
  const struct {
    std::int64_t tokens;
    double graph;
    double eager;
  } measured[] = {{64, 1.40, 1.51},   {128, 1.50, 1.62},  {256, 1.65, 1.83},  {512, 2.04, 2.24},
                  {1024, 2.97, 3.19}, {2048, 5.26, 5.41}, {4096, 12.5, 11.9}, {8192, 31.3, 30.6}};
  for (const auto& m : measured) {
    costs.add(RunnerKind::kPrefill, m.tokens, m.graph);
    costs.add(RunnerKind::kEager, m.tokens, m.eager);
  }
  return costs;
}

DispatchTable graphs_to(std::int64_t max_tokens) {
  DispatchTable table;
  table.prefill_sizes = prefill_ladder(max_tokens);
  table.decode_sizes = decode_ladder(256);
  return table;
}

// Makes about 4 requests a second, with prompts of 30 to 8000 tokens. The lengths of the prompts are log-uniform. Every
// third prompt shares a prefix with other prompts.
std::vector<SimulatedRequest> synthetic(int count) {
  std::mt19937_64 random(7);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<SimulatedRequest> requests;
  double now = 0;
  for (int i = 0; i < count; ++i) {
    now += -0.25 * std::log(1 - uniform());
    SimulatedRequest request{.arrival_s = now,
                             .prompt_tokens = static_cast<std::int64_t>(30 * std::pow(8000.0 / 30, uniform())),
                             .output_tokens = 1 + static_cast<std::int64_t>(random() % 200)};
    if (i % 3 == 0) request.blocks = {static_cast<std::int64_t>(random() % 10), 1000 + i};
    requests.push_back(request);
  }
  return requests;
}

Simulation run(const std::vector<SimulatedRequest>& requests, const SimulationOptions& options) {
  Result<Simulation> done = simulate(requests, options);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return done.ok() ? *std::move(done) : Simulation{};
}

TEST(Simulation, TokensAddUp) {
  const std::vector<SimulatedRequest> requests = synthetic(500);
  std::int64_t prompts = 0;
  std::int64_t outputs = 0;
  for (const SimulatedRequest& r : requests) {
    prompts += r.prompt_tokens;
    outputs += r.output_tokens;
  }
  const Simulation s = run(requests, {.scheduler = {.limits = {.max_tokens = 2048}}, .table = graphs_to(2048)});
  EXPECT_EQ(s.stats.prompt_tokens, prompts);
  EXPECT_GT(s.stats.cached_tokens, 10000) << "prompts that begin alike";
  EXPECT_EQ(s.prompt_tokens, prompts - s.stats.cached_tokens);
  EXPECT_EQ(s.counters.tokens, s.prompt_tokens + outputs - 500) << "the last token of each is not computed";
  EXPECT_GT(s.mixed_forwards, 100);
  EXPECT_GE(s.end_s, requests.back().arrival_s);
  EXPECT_EQ(s.stats.fullest_group().used_pages, 0);
  std::int64_t forwards = 0;
  for (const auto& [tokens, count] : s.forward_tokens) forwards += count;
  std::int64_t in_histogram = 0;
  for (int b = 0; b < TokenHistogram::kBuckets; ++b) in_histogram += s.counters.prefill_tokens.count(b);
  EXPECT_EQ(in_histogram, forwards);
}

TEST(Simulation, PromptsAreReplayedWhateverTheyAreMixedWith) {
  const std::vector<SimulatedRequest> requests = synthetic(1500);
  for (const std::int64_t chunk : {2048, 8192}) {
    const Simulation s = run(
        requests, {.scheduler = {.limits = {.max_tokens = chunk}}, .table = graphs_to(2048), .prompt_logprobs = 0.3});
    EXPECT_GT(s.mixed_forwards, 100);
    EXPECT_GE(static_cast<double>(s.replayed_prompt_tokens), 0.99 * static_cast<double>(s.prompt_tokens));
    EXPECT_EQ(s.stats.split_chunks > 0, chunk > 2048);
  }
}

// The default graph sizes leave gaps in which an eager run costs less than padding. The automatic sizes fill these
// gaps.
TEST(Simulation, MeasuredCostsSaveTime) {
  const std::vector<SimulatedRequest> requests = synthetic(1500);
  const CostTable measured = h200_costs();
  for (const std::int64_t chunk : {2048, 8192}) {
    SimulationOptions options{
        .scheduler = {.limits = {.max_tokens = chunk}}, .table = graphs_to(2048), .times = &measured};
    double fastest = run(requests, options).prefill_ms;
    std::cout << "chunk " << chunk << ": " << fastest << " ms without costs";
    options.table.costs = &measured;
    for (const bool automatic : {false, true}) {
      if (automatic) options.table.prefill_sizes = auto_ladder(2048, prefill_cost(measured));
      const Simulation s = run(requests, options);
      const double share = static_cast<double>(s.replayed_prompt_tokens) / static_cast<double>(s.prompt_tokens);
      std::cout << ", " << s.prefill_ms << (automatic ? " auto (" : " default (") << 100 * share << " % replayed)";
      EXPECT_LT(s.prefill_ms, fastest);
      fastest = s.prefill_ms;
      std::int64_t eager = 0;
      for (const auto& [reason, tokens] : s.eager_prompt_tokens) eager += tokens;
      EXPECT_EQ(s.replayed_prompt_tokens + eager, s.prompt_tokens) << "tokens without a reason";
      EXPECT_GE(share, automatic ? 0.99 : 0.9);
    }
    std::cout << "\n";
  }
}

TEST(Simulation, EagerForwardsHaveTheirReason) {
  const std::vector<SimulatedRequest> requests = synthetic(50);
  SimulationOptions options{.scheduler = {.limits = {.max_tokens = 8192}}, .table = graphs_to(64)};
  const Simulation small = run(requests, options);
  EXPECT_THAT(small.eager_prompt_tokens, UnorderedElementsAre(Pair(Reason::kAboveLargestSize, ::testing::Gt(0))));
  EXPECT_EQ(small.stats.split_chunks, 0);
  EXPECT_LT(small.prefill_waste().served, 1);
  options.table.graphs_enabled = false;
  const Simulation off = run(requests, options);
  EXPECT_THAT(off.eager_prompt_tokens, UnorderedElementsAre(Pair(Reason::kGraphsDisabled, off.prompt_tokens)));
  EXPECT_EQ(off.replayed_prompt_tokens, 0);
}

TEST(Simulation, RefusesWhatCannotBeServed) {
  const SimulationOptions options{.cache = paged_cache(5, 16)};  // 4 usable pages have room for 64 tokens
  const struct {
    std::vector<SimulatedRequest> requests;
    const char* message;
  } cases[] = {{{{.prompt_tokens = 0}}, "request 0 has 0 prompt"},
               {{{.output_tokens = 0}}, "and 0 output tokens"},
               {{{.prompt_tokens = 60, .output_tokens = 5}}, "request 0 has 65 tokens, and the KV cache holds 64"},
               {{{.arrival_s = 2}, {.arrival_s = 1}}, "request 1 arrives before"}};
  for (const auto& c : cases) {
    const Status status = simulate(c.requests, options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(simulate({}, options).ok()) << "nothing to do";
}

// Forwards have 33 to 8192 tokens, each number equally often. Measured costs decide whether a forward is padded, cut or
// run eagerly.
TEST(PaddingOfUniformForwards, TakesLittleTimeWithTheAutoSchedule) {
  const CostTable measured = h200_costs();
  const TokenWeights uniform = uniform_weights(33, 8192);
  for (const bool cold : {true, false}) {
    const TokenCost cost = prefill_cost(cold ? std::nullopt : std::optional(measured));
    const std::vector<std::int64_t> sizes = auto_ladder(8192, cost);
    // Judges the ladder by the measured costs, even if it was made without measurements (`cold`).
    const PaddingWaste waste = padding_waste(sizes, prefill_cost(measured), uniform);
    const PaddingWaste fixed = padding_waste(prefill_ladder(8192), prefill_cost(measured), uniform);
    std::cout << (cold ? "nothing measured: " : "measured: ") << sizes.size() << " sizes, padding "
              << 100 * waste.tokens << " % of tokens, " << 100 * waste.time << " % of time; default ladder "
              << 100 * fixed.tokens << " % and " << 100 * fixed.time << " %\n";
    EXPECT_LE(waste.time, 0.03);
    EXPECT_LE(sizes.size(), 96u);
    EXPECT_EQ(waste.served, 1);
  }
}

}  // namespace
}  // namespace tessera
