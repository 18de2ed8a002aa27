// Catches: a rank that loads the wrong slice; a partial sum that is not added; ranks that disagree.
#include <gtest/gtest.h>

#include <cstdio>

#include "golden_cases.h"
#include "rank_run.h"

namespace tessera {
namespace {

void expect_ranks_equal_reference(const char* name, int ranks) {
  const testing::Golden golden = testing::read_golden(name);
  const testing::RankResults results =
      testing::run_ranks(golden, *ModelConfig::read(golden.folder, built_in_families()), ranks);
  for (const auto& result : results) ASSERT_TRUE(result.ok()) << result.status().to_string();
  for (int rank = 1; rank < ranks; ++rank)
    EXPECT_EQ(*results[0], *results[static_cast<std::size_t>(rank)]) << "ranks must agree to the bit";
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const testing::Distance d = testing::distance((*results[0])[i], golden.stored_rows(i));
    std::printf("%s on %d ranks, prompt %zu: greatest difference %.2e\n", name, ranks, i, d.absolute);
    EXPECT_LE(d.absolute, 1e-4);
  }
}

class TensorParallel : public ::testing::TestWithParam<const char*> {};
class TensorParallelFour : public TensorParallel {};

TEST_P(TensorParallel, TwoRanksEqualHuggingFaceAndEachOther) { expect_ranks_equal_reference(GetParam(), 2); }
TEST_P(TensorParallelFour, FourRanksEqualHuggingFaceAndEachOther) { expect_ranks_equal_reference(GetParam(), 4); }

// The cases: biases on q, k, v, o; a tied head; norms of heads and of whole rows; tensors that join several matrices;
// experts, with and without biases; latents; sinks.
INSTANTIATE_TEST_SUITE_P(Goldens, TensorParallel,
                         ::testing::Values("llama", "llama-bias", "qwen2", "qwen3", "llama3-rope-tied", "olmo2", "phi3",
                                           "qwen3-moe", "gemma2", "gemma4", "gemma4-moe", "gemma4-e", "qwen3.5-text",
                                           "qwen3.5", "glm4-moe-lite", "gpt-oss"),
                         testing::case_name);

// There are more ranks than KV heads, so neighbouring ranks hold the same head. A norm over the whole row must not
// count this head twice. In glm4-moe-lite, every rank has the whole latents.
INSTANTIATE_TEST_SUITE_P(SharedKvHeads, TensorParallelFour,
                         ::testing::Values("llama", "olmo2", "phi3", "gemma4", "glm4-moe-lite"), testing::case_name);

}  // namespace
}  // namespace tessera
