// Catches: published traces in which more than 1 % of the prefill tokens run without graphs; eager tokens without a
// recorded reason. In the simulation, graphs cover up to 2048 tokens, steps mix prompts with decodes, and some requests
// ask for log-probabilities of their prompts. Needs the traces of ../shared/data (or TESSERA_SHARED_DIR). The engine's
// simulation_test does the same with generated requests.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "tessera/device/testing/environment.h"
#include "tessera/engine/schedule/simulation.h"
#include "tessera/load/load.h"
#include "tessera/piecewise/ladder.h"

namespace tessera::cli {
namespace {

// The number of requests that are simulated. A whole trace would take a minute. With this many requests, the share of
// replayed tokens, which must be at least 99 %, is stable.
constexpr std::int64_t kRequests = 2000;

std::string trace_path(const std::string& name) {
  const char* shared = std::getenv("TESSERA_SHARED_DIR");
  return (shared != nullptr ? std::string(shared) : testing::source_path("../shared")) + "/data/traces/" + name;
}

class Traces : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, Traces,
                         ::testing::Values("azure/AzureLLMInferenceTrace_conv.csv",
                                           "azure/AzureLLMInferenceTrace_code.csv", "mooncake_conversation.jsonl"),
                         [](const auto& trace) { return std::filesystem::path(trace.param).stem().string(); });

TEST_P(Traces, PrefillTokensAreReplayed) {
  const std::string path = trace_path(GetParam());
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared data: traces";
  const Result<Load> load = make_load({.trace = path, .num_prompts = kRequests});
  ASSERT_TRUE(load.ok()) << load.status().to_string();
  std::vector<SimulatedRequest> requests;
  for (const LoadRequest& r : load->requests)
    requests.push_back({r.arrival_s, r.input_tokens, r.output_tokens, r.blocks});
  for (const std::int64_t chunk : {2048, 8192}) {
    SimulationOptions options{
        .scheduler = {.limits = {.max_tokens = chunk}}, .block_tokens = kBlockTokens, .prompt_logprobs = 0.1};
    options.table.prefill_sizes = prefill_ladder(2048);
    options.table.decode_sizes = decode_ladder(256);
    const Result<Simulation> done = simulate(requests, options);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    const double share = static_cast<double>(done->replayed_prompt_tokens) / static_cast<double>(done->prompt_tokens);
    const PaddingWaste waste = done->prefill_waste();
    std::cout << GetParam() << ", chunk " << chunk << ": " << std::ssize(requests) << " requests, "
              << done->prompt_tokens << " prompt tokens computed, " << 100 * share << " % replayed, "
              << done->mixed_forwards << " mixed forwards, padding " << 100 * waste.tokens << " % of tokens, "
              << 100 * waste.time << " % of time\n";
    EXPECT_GE(share, 0.99);
    EXPECT_GT(done->mixed_forwards, 100);
    std::int64_t eager = 0;
    for (const auto& [reason, tokens] : done->eager_prompt_tokens) {
      std::cout << "  eager, " << reason_text(reason) << ": " << tokens << " tokens\n";
      eager += tokens;
    }
    EXPECT_EQ(done->replayed_prompt_tokens + eager, done->prompt_tokens) << "tokens without a reason";
  }
}

}  // namespace
}  // namespace tessera::cli
