// Catches: a weight made of several stored tensors (values and scales) with wrong values: a wrong scale for a block,
// for the edge of a tensor or for a rank's slice, or a stored type that is decoded wrongly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "rank_run.h"

namespace tessera {
namespace {

struct Case {
  const char* name;
  const char* scale_suffix;  // follows the name of the values' tensor
  std::int64_t block_rows;
  std::int64_t block_cols;
};

// Returns config.json without its quantisation settings, which no command accepts yet.
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

// FP8 in blocks of 128 by 128, with partial last blocks of k and v, and INT8 with a scale for each row.
INSTANTIATE_TEST_SUITE_P(Goldens, QuantisedWeights,
                         ::testing::Values(Case{"qwen3-fp8-block", "_scale_inv", 128, 128},
                                           Case{"llama-ct-w8a8", "_scale", 1, 256}),
                         [](const auto& c) {
                           std::string text = c.param.name;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace tessera
