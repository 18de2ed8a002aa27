// Catches: wrong values in a weight that is made of several stored tensors (values and scales), because the scale for a
// block, for the edge of a tensor or for a rank's slice is wrong, or because a stored type is decoded wrongly. Some
// tests dequantise the weights, as for an operator that takes no quantised matrix. Other tests divide quantised weights
// among ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "golden_cases.h"
#include "rank_run.h"

namespace tessera {
namespace {

struct Case {
  const char* name;
  const char* scale_suffix;  // follows the name of the values' tensor
  std::int64_t block_rows;
  std::int64_t block_cols;
};

// Returns the config without its quantisation settings, so that every weight is plain.
ModelConfig plain_config(const std::string& folder) {
  Json json = *Json::read_file(folder + "/config.json");
  json.set("quantization_config", Json());
  return *ModelConfig::from_json(json, folder, built_in_families());
}

class QuantisedWeights : public ::testing::TestWithParam<Case> {};

TEST_P(QuantisedWeights, AreTheFloatsThatTheyMean) {
  const Case& c = GetParam();
  const testing::Golden golden = testing::read_golden_folder(testing::data_path(std::string("quantised/") + c.name));
  const auto store_with_scales = [&](const Checkpoint& checkpoint, std::vector<WeightSpec>& weights) {
    int scaled = 0;
    for (WeightSpec& weight : weights)
      for (WeightPart& part : weight.parts) {
        const StoredTensor* stored = checkpoint.find(part.tensor);
        if (stored == nullptr || is_weight_dtype(stored->dtype)) continue;
        part.storage = ScaledStorage{
            .scale = part.tensor + c.scale_suffix, .block_rows = c.block_rows, .block_cols = c.block_cols};
        ++scaled;
      }
    EXPECT_EQ(scaled, 14) << "seven matrices in each of two layers";
  };
  for (const int ranks : {1, 2}) {
    const testing::RankResults results =
        testing::run_ranks(golden, plain_config(golden.folder), ranks, store_with_scales);
    for (const auto& result : results) ASSERT_TRUE(result.ok()) << result.status().to_string();
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      const testing::Distance d = testing::distance((*results[0])[i], golden.stored_rows(i));
      std::printf("%s on %d ranks, prompt %zu: greatest difference %.2e\n", c.name, ranks, i, d.absolute);
      EXPECT_LE(d.absolute, 1e-4);
    }
  }
}

// The first case is FP8 with a scale for each block of 128 by 128; the last blocks of k and v are partial. The second
// case is INT8 with a scale for each row.
INSTANTIATE_TEST_SUITE_P(Goldens, QuantisedWeights,
                         ::testing::Values(Case{"qwen3-fp8-block", "_scale_inv", 128, 128},
                                           Case{"llama-ct-w8a8", "_scale", 1, 256}),
                         [](const auto& c) {
                           std::string text = c.param.name;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

class QuantisedRanks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string absent = testing::absent_golden(GetParam()); !absent.empty()) GTEST_SKIP() << absent;
  }
};

TEST_P(QuantisedRanks, TwoRanksComputeWhatOneDoes) {
  const testing::Golden golden = testing::read_golden(GetParam());
  const Result<ModelConfig> config = ModelConfig::read(golden.folder, built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const auto as_they_are = [](const Checkpoint&, std::vector<WeightSpec>& weights) {
    const auto is_packed = [](const WeightSpec& weight) { return weight.type.dtype == ir::DType::kUInt8; };
    EXPECT_GE(std::ranges::count_if(weights, is_packed), 8) << "matrices that stay quantised";
  };
  const testing::RankResults results = testing::run_ranks(golden, *config, 2, as_they_are);
  for (const auto& result : results) ASSERT_TRUE(result.ok()) << result.status().to_string();
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const testing::Distance d = testing::distance((*results[0])[i], golden.stored_rows(i));
    std::printf("%s on 2 ranks, prompt %zu: greatest difference %.2e\n", GetParam(), i, d.absolute);
    EXPECT_LE(d.absolute, 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, QuantisedRanks, ::testing::ValuesIn(testing::kQuantisedGoldens), testing::case_name);
// Leaves out Qwen3.5's checkpoint, because its runner needs pages of states, which these ranks do not have.
INSTANTIATE_TEST_SUITE_P(Larger, QuantisedRanks,
                         ::testing::Values("shared/llama-ct-fp8-static", "shared/qwen3-ct-fp8-dynamic",
                                           "shared/llama-gptq-desc", "shared/llama-nvfp4-modelopt",
                                           "shared/qwen3-moe-fp8-block", "shared/qwen3-moe-ct-nvfp4",
                                           "shared/deepseek-v3-fp8-block"),
                         testing::case_name);

}  // namespace
}  // namespace tessera
