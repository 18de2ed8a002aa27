// Catches: ranks whose slice of an adapter does not match their slice of the adapted matrix; an adapter's result that
// is added once for each rank; a rank that lacks the adapter or has another adapter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "adapter_golden.h"
#include "tessera/ops/testing/ranks.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::folder_of;
using testing::Golden;
using testing::greedy;
using testing::kBothAdapters;
using testing::read_golden_folder;
using testing::run_one;
using testing::scored;

struct Division {
  const char* name;
  int tp_size = 1;
  int pp_size = 1;
  int ranks() const { return tp_size * pp_size; }
};
constexpr Division kRanks{.name = "Ranks", .tp_size = 2};
constexpr Division kStages{.name = "Stages", .pp_size = 2};
constexpr Division kBoth{.name = "RanksOfStages", .tp_size = 2, .pp_size = 2};

void PrintTo(const Division& of, std::ostream* to) { *to << of.name; }
std::string name_of(const ::testing::TestParamInfo<Division>& info) { return info.param.name; }

EngineOptions options_of(const Division& of, const std::string& base = "qwen3", std::int64_t slots = 4) {
  EngineOptions options = testing::options_for(base, slots);
  options.tp_size = of.tp_size;
  options.pp_size = of.pp_size;
  options.rank_timeout_s = 60;
  return options;
}

void expect_golden(Engine& engine, const Golden& golden, const char* what) {
  double greatest = 0;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const Completion done = run_one(engine, scored(golden.prompts[i], "tuned"));
    greatest = std::max(greatest, testing::distance(done.logits, golden.stored_rows(i)).absolute);
    EXPECT_EQ(run_one(engine, greedy(golden.prompts[i], "tuned")).output_ids, golden.greedy[i]) << "prompt " << i;
  }
  std::printf("  %s: greatest difference %.2e\n", what, greatest);
  EXPECT_LE(greatest, 1e-4);
}

class AdapterRanks : public ::testing::TestWithParam<Division> {
 protected:
  void SetUp() override {
    if (!testing::has_devices_for(GetParam().ranks())) GTEST_SKIP() << "needs " << GetParam().ranks() << " GPUs";
  }
};

TEST_P(AdapterRanks, LogitsAndTokensEqualPeft) {
  const std::pair<const char*, const char*> kCases[] = {{"qwen3", kBothAdapters[0]},
                                                        {"qwen3", kBothAdapters[1]},
                                                        {"llama", "llama-lora/r16-pattern"},
                                                        {"llama", "llama-lora/r4-embed-head"},
                                                        {"llama", "llama-lora/r8-save-embed-head"},
                                                        {"qwen3-moe", "qwen3-moe-lora/r4-target-parameters"}};
  for (const auto& [base, adapter] : kCases) {
    const Golden golden = read_golden_folder(folder_of(adapter));
    EngineOptions options = options_of(GetParam(), base);
    options.adapters.paths = {{.name = "tuned", .path = golden.folder}};
    options.adapters.limits.targets = testing::targets_of(adapter);
    options.adapters.limits.saved = testing::saved_by(adapter);
    const std::unique_ptr<Engine> engine = testing::make_engine(options);
    ASSERT_NE(engine, nullptr);
    expect_golden(*engine, golden, adapter);
  }
}

// Runs a mixed batch on an engine that has a slot for each adapter.
void expect_mixed(EngineOptions options, const testing::NamedAdapters& adapters) {
  options.deterministic = true;
  options.disable_radix_cache = true;
  const std::unique_ptr<Engine> engine = testing::make_engine(options);
  ASSERT_NE(engine, nullptr);
  testing::expect_mixed_equals_alone(*engine, adapters);
}

TEST_P(AdapterRanks, AMixedBatchEqualsEachRequestAlone) {
  expect_mixed(options_of(GetParam(), "qwen3", /*slots=*/5), testing::five_adapters());
}

// Both adapters change the experts, and one also changes the attention. One file has stacks of all experts, and the
// other file has linears of single experts.
TEST_P(AdapterRanks, MixedChangesOfExpertsEqualEachRequestAlone) {
  const std::string stacks = "qwen3-moe-lora/r4-target-parameters";
  const std::string linears = "qwen3-moe-lora/r4-experts-linear";
  EngineOptions options = options_of(GetParam(), "qwen3-moe", /*slots=*/4);
  options.adapters.limits.targets = testing::targets_of(stacks);
  expect_mixed(options, {{"a", stacks}, {"b", linears}, {"c", stacks}, {"d", linears}});
}

// One adapter changes the embedding and the head by low-rank matrices, one replaces them, and one leaves them alone.
TEST_P(AdapterRanks, MixedEmbeddingsAndHeadsEqualEachRequestAlone) {
  const std::string changes = "llama-lora/r4-embed-head";
  const std::string replaces = "llama-lora/r8-save-embed-head";
  EngineOptions options = options_of(GetParam(), "llama", /*slots=*/3);
  options.adapters.limits.targets = testing::targets_of(changes);
  options.adapters.limits.saved = testing::saved_by(replaces);
  expect_mixed(options, {{"a", changes}, {"b", replaces}, {"c", "llama-lora/r16-pattern"}});
}

TEST_P(AdapterRanks, EveryRankGetsWhatTakesASlot) {
  const std::unique_ptr<Engine> engine = testing::make_engine(options_of(GetParam(), "qwen3", /*slots=*/1));
  ASSERT_NE(engine, nullptr);
  for (int round = 0; round < 2; ++round)
    for (const char* adapter : kBothAdapters) {
      const Golden golden = read_golden_folder(folder_of(adapter));
      ASSERT_TRUE(testing::load(*engine, "tuned", golden.folder, /*replace=*/true).ok());
      EXPECT_EQ(run_one(*engine, greedy(golden.prompts[0], "tuned")).output_ids, golden.greedy[0]) << adapter;
    }
}

TEST_P(AdapterRanks, VerifyComparesTheGraphsOfEveryRank) {
  const std::unique_ptr<Engine> engine = testing::make_engine(options_of(GetParam()));
  ASSERT_NE(engine, nullptr);
  const Result<VerifyReport> report = verify(engine->runner(), false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  int compared = 0;
  for (const VerifyRow& row : report->rows) {
    compared += row.runner.starts_with("adapter") ? 1 : 0;
    EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, AdapterRanks, ::testing::Values(kRanks, kStages, kBoth), name_of);

}  // namespace
}  // namespace tessera
