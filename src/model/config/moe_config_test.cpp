// Catches: a mixture of experts that is read differently than in transformers; a config that is accepted although its
// tokens cannot be routed; a layer that has experts although it should have an MLP.
#include "tessera/model/config/moe_config.h"

#include <random>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using test::expect_error;
using test::small;
using ::testing::Each;
using ::testing::ElementsAre;

MoeConfig moe(const char* architecture, const char* changes = "{}") {
  const Result<ModelConfig> config = small(architecture, changes);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() && config->moe ? *config->moe : MoeConfig{};
}

TEST(MoeConfig, TakesDefaultsOfTheArchitecture) {
  const MoeConfig qwen = moe("Qwen3MoeForCausalLM");
  EXPECT_EQ(qwen.num_experts, 128);
  EXPECT_EQ(qwen.experts_per_token, 8);
  EXPECT_EQ(qwen.intermediate_size, 768);
  EXPECT_EQ(qwen.shared_intermediate_size, 0);
  EXPECT_FALSE(qwen.normalise || qwen.correction_bias || qwen.router_bias || qwen.expert_bias || qwen.shared_gate);
  EXPECT_EQ(qwen.scoring, RouterScoring::kSoftmax);
  EXPECT_THAT(qwen.layers, ElementsAre(true, true, true, true));
  EXPECT_EQ(small("Qwen3MoeForCausalLM")->qk_norm, QkNorm::kHead);

  const MoeConfig mixtral = moe("MixtralForCausalLM");
  EXPECT_EQ(mixtral.num_experts, 8);
  EXPECT_EQ(mixtral.experts_per_token, 2);
  EXPECT_EQ(mixtral.intermediate_size, 160) << "intermediate_size is an expert's";
  EXPECT_TRUE(mixtral.normalise);
  EXPECT_EQ(small("MixtralForCausalLM")->rms_norm_eps, 1e-5);

  const MoeConfig glm = moe("Glm4MoeForCausalLM");
  EXPECT_EQ(glm.num_experts, 128);
  EXPECT_EQ(glm.intermediate_size, 1408);
  EXPECT_EQ(glm.shared_intermediate_size, 1408);
  EXPECT_EQ(glm.scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(glm.normalise && glm.correction_bias);
  EXPECT_EQ(glm.scale, 1.0);
  EXPECT_THAT(glm.layers, ElementsAre(false, true, true, true));
  EXPECT_EQ(small("Glm4MoeForCausalLM")->rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(small("Glm4MoeForCausalLM")->qk_norm, QkNorm::kNone);
}

TEST(MoeConfig, ReadsSizesUnderBothNames) {
  const char* const kArchitecture = "Qwen3MoeForCausalLM";
  EXPECT_EQ(moe(kArchitecture, R"({"num_experts": 6, "num_experts_per_tok": 3})").num_experts, 6);
  const MoeConfig renamed =
      moe(kArchitecture, R"({"num_local_experts": 16, "moe_intermediate_size": 40, "norm_topk_prob": true})");
  EXPECT_EQ(renamed.num_experts, 16);
  EXPECT_EQ(renamed.intermediate_size, 40);
  EXPECT_TRUE(renamed.normalise);
  EXPECT_EQ(moe(kArchitecture, R"({"num_local_experts": 16, "num_experts": 16})").num_experts, 16);
  const ModelConfig biased = *small("Glm4MoeForCausalLM", R"({"attention_bias": true, "use_qk_norm": true})");
  EXPECT_TRUE(biased.qkv_bias);
  EXPECT_FALSE(biased.o_bias) << "the projection after attention has none";
  EXPECT_EQ(biased.qk_norm, QkNorm::kHead);
}

TEST(MoeConfig, ReadsWhichLayersHaveExperts) {
  EXPECT_THAT(moe("Qwen3MoeForCausalLM", R"({"decoder_sparse_step": 2})").layers,
              ElementsAre(false, true, false, true));
  EXPECT_THAT(moe("Qwen3MoeForCausalLM", R"({"mlp_only_layers": [0, 3, 77]})").layers,
              ElementsAre(false, true, true, false));
  EXPECT_THAT(moe("Glm4MoeForCausalLM", R"({"first_k_dense_replace": 3})").layers,
              ElementsAre(false, false, false, true));
  EXPECT_THAT(moe("Glm4MoeForCausalLM", R"({"first_k_dense_replace": 9})").layers, Each(false));
  EXPECT_THAT(moe("Glm4MoeForCausalLM", R"({"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]})").layers,
              ElementsAre(true, false, true, false));
}

TEST(MoeConfig, ReadsGroupsAndSharedExperts) {
  const MoeConfig glm = moe("Glm4MoeForCausalLM", R"({"n_routed_experts": 32, "n_group": 8, "topk_group": 4,
      "n_shared_experts": 2, "moe_intermediate_size": 48, "routed_scaling_factor": 2.5, "norm_topk_prob": false})");
  EXPECT_EQ(glm.groups, 8);
  EXPECT_EQ(glm.groups_per_token, 4);
  EXPECT_EQ(glm.shared_intermediate_size, 96);
  EXPECT_EQ(glm.scale, 2.5);
  EXPECT_FALSE(glm.normalise);
}

TEST(MoeConfig, RefusesWithFieldValueAndWhatIsAccepted) {
  struct Case {
    const char* architecture;
    const char* changes;
    std::vector<std::string> parts;
  };
  const char* const kQwen = "Qwen3MoeForCausalLM";
  const char* const kGlm = "Glm4MoeForCausalLM";
  const Case cases[] = {
      {kQwen, R"({"num_experts": 0})", {"\"num_experts\" is 0", "[1, 1024]"}},
      {kQwen, R"({"num_experts": 1025})", {"\"num_experts\" is 1025"}},
      {kQwen, R"({"num_experts": 4})", {"num_experts_per_tok", "[1, 4], of 4 experts"}},
      {kQwen, R"({"num_experts": 4, "num_experts_per_tok": 5})", {"\"num_experts_per_tok\" is 5", "[1, 4]"}},
      {kQwen, R"({"num_experts_per_tok": 0})", {"\"num_experts_per_tok\" is 0"}},
      {kQwen, R"({"num_experts": 8, "num_local_experts": 16})", {"\"num_local_experts\" is 16", "num_experts (8)"}},
      {kQwen, R"({"moe_intermediate_size": 0})", {"\"moe_intermediate_size\" is 0"}},
      {kQwen, R"({"decoder_sparse_step": 0})", {"\"decoder_sparse_step\" is 0"}},
      {kQwen, R"({"mlp_only_layers": [-1]})", {"\"mlp_only_layers\" is [-1]"}},
      {kQwen, R"({"mlp_only_layers": 3})", {"\"mlp_only_layers\" is 3", "a list of layers"}},
      {"MixtralForCausalLM", R"({"num_local_experts": 1})", {"num_experts_per_tok", "of 1 experts"}},
      {kGlm, R"({"n_group": 3})", {"\"n_group\" is 3", "divisor of the number of experts (128)"}},
      {kGlm, R"({"n_group": 128})", {"\"n_group\" is 128", "at most 64"}},
      {kGlm, R"({"n_group": 4, "topk_group": 5})", {"\"topk_group\" is 5", "[1, 4]"}},
      {kGlm, R"({"n_group": 32})", {"topk_group", "num_experts_per_tok (8) experts; they have 4"}},
      {kGlm, R"({"routed_scaling_factor": -1})", {"\"routed_scaling_factor\" is -1"}},
      {kGlm, R"({"mlp_layer_types": ["dense"]})", {"mlp_layer_types", "num_hidden_layers (4)"}},
      {kGlm, R"({"mlp_layer_types": ["dense", "dense", "dense", "wide"]})", {"mlp_layer_types", "\"sparse\""}},
      {kGlm, R"({"n_shared_experts": 1000, "moe_intermediate_size": 4096})", {"\"n_shared_experts\" is 1000", "4096"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.changes);
    expect_error(small(c.architecture, c.changes), StatusCode::kInvalidArgument, c.parts);
  }
}

// Sets two fields at a time to extreme values. The router must be able to route tokens with every accepted config.
TEST(MoeConfigFuzz, NeverCrashesAndAcceptsOnlyRoutableConfigs) {
  std::mt19937 random(20250429);
  const char* const kArchitectures[] = {"Qwen3MoeForCausalLM", "MixtralForCausalLM", "Glm4MoeForCausalLM"};
  const char* const kFields[] = {
      "num_experts",    "num_local_experts",   "n_routed_experts",      "num_experts_per_tok",  "moe_intermediate_size",
      "n_group",        "topk_group",          "n_shared_experts",      "mlp_only_layers",      "mlp_layer_types",
      "norm_topk_prob", "decoder_sparse_step", "first_k_dense_replace", "routed_scaling_factor"};
  const Json values = *Json::parse(
      R"([null, true, -1, 0, 1, 2, 3, 8, 64, 1024, 4294967296, 9223372036854775807, 1e308, 0.5, "", [], [1], [[]], {}])",
      "values");
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    Json changes = Json::object();
    for (int change = 0; change < 2; ++change)
      changes.set(kFields[random() % std::size(kFields)], values.as_array()[random() % values.as_array().size()]);
    const Result<ModelConfig> config =
        small(kArchitectures[static_cast<std::size_t>(round) % std::size(kArchitectures)], changes.dump().c_str());
    if (!config.ok()) continue;
    ++accepted;
    const MoeConfig& got = *config->moe;
    ASSERT_EQ(got.layers.size(), 4u) << changes.dump();
    ASSERT_EQ(got.num_experts % got.groups, 0) << changes.dump();
    ASSERT_LE(got.experts_per_token, got.num_experts / got.groups * got.groups_per_token) << changes.dump();
    const Result<ModelGraphs> graphs = build_model(*config, {}, built_in_ops(), built_in_families());
    ASSERT_TRUE(graphs.ok()) << graphs.status().to_string() << " of " << changes.dump();
  }
  std::printf("%d of 3000 configs accepted\n", accepted);
  EXPECT_GT(accepted, 100);
}

// Tensor parallelism splits the intermediate size of each expert, so the number of ranks must divide it.
TEST(MoeModel, RefusesUnsupportedSlicesAndActivations) {
  const ModelConfig odd = *small("Qwen3MoeForCausalLM", R"({"moe_intermediate_size": 47})");
  expect_error(build_model(odd, {.tp_size = 2}, built_in_ops(), built_in_families()), StatusCode::kInvalidArgument,
               {"the experts' intermediate size is 47", "2 ranks"});
  const ModelConfig erf = *small("MixtralForCausalLM", R"({"hidden_act": "gelu"})");
  expect_error(build_model(erf, {}, built_in_ops(), built_in_families()), StatusCode::kUnimplemented,
               {"hidden_act \"gelu\"", "silu, gelu_pytorch_tanh"});
}

TEST(MoeModel, LayersWithExpertsAreDescribed) {
  const ModelConfig config = *small("Qwen3MoeForCausalLM", R"({"decoder_sparse_step": 2, "num_experts": 16})");
  const ModelGraphs graphs = *build_model(config, {}, built_in_ops(), built_in_families());
  ASSERT_EQ(graphs.layers.size(), 4u);
  EXPECT_FALSE(graphs.layers[0].moe || graphs.layers[2].moe);
  EXPECT_EQ(graphs.layers[1].moe->num_experts, 16);
  EXPECT_EQ(graphs.layers[3].moe->experts_per_token, 8);
}

TEST(MoeModel, PublishedModelsHaveTheirKnownSizes) {
  const std::filesystem::path configs = test::shared_dir() / "data" / "configs";
  TESSERA_SKIP_WITHOUT(configs);
  const auto parameters = [&](const char* name) {
    const ModelConfig config = *ModelConfig::read((configs / name).string(), built_in_families());
    return parameter_count(build_model(config, {}, built_in_ops(), built_in_families())->weights);
  };
  // The counts are those that the models' cards give for the safetensors files.
  EXPECT_EQ(parameters("aiconfigurator/Qwen--Qwen3-30B-A3B_config.json"), 30'532'122'624);
  EXPECT_EQ(parameters("aiconfigurator/Qwen--Qwen3-235B-A22B_config.json"), 235'093'634'560);
  EXPECT_EQ(parameters("aiconfigurator/mistralai--Mixtral-8x7B-v0.1_config.json"), 46'702'792'704);
  EXPECT_EQ(parameters("aiconfigurator/mistralai--Mixtral-8x22B-v0.1_config.json"), 140'620'634'112);
}

}  // namespace
}  // namespace tessera
