// Catches: a growth of queries that is ignored, or accepted for a family or a rotation without it; a default that
// differs from Hugging Face's.
#include <fmt/format.h>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;
using test::small;
using ::testing::Each;

TEST(Ministral3Config, ReadsGrowthOfQueries) {
  const auto with = [](const char* architecture, const char* type) {
    return small(architecture,
                 fmt::format(R"({{"rope_parameters": {{"rope_type": "{}", "rope_theta": 1000000, "factor": 16,
        "original_max_position_embeddings": 128, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1}}}})",
                             type)
                     .c_str());
  };
  const Result<ModelConfig> config = with("Ministral3ForCausalLM", "yarn");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope.query_growth, 0.1);
  EXPECT_EQ(config->rope.original_max_position_embeddings, 128);
  EXPECT_EQ(attention_scaling(config->rope), 1.0F);
  EXPECT_THAT(config->sliding_windows, Each(0));
  const ModelConfig plain = *small("Ministral3ForCausalLM");
  EXPECT_EQ(plain.rope.query_growth, 0.1) << "Hugging Face's default";
  EXPECT_EQ(plain.rope.original_max_position_embeddings, 16384);
  EXPECT_EQ(plain.rms_norm_eps, 1e-5);
  expect_error(with("Ministral3ForCausalLM", "linear"), StatusCode::kUnimplemented, {"llama_4_scaling_beta"});
  expect_error(with("MistralForCausalLM", "yarn"), StatusCode::kUnimplemented, {"llama_4_scaling_beta"});
  expect_error(
      small("Ministral3ForCausalLM", R"({"llama_4_scaling_beta": 0.1, "rope_scaling": {"type": "yarn", "factor": 4}})"),
      StatusCode::kUnimplemented, {"llama_4_scaling_beta"});
}

}  // namespace
}  // namespace tessera
