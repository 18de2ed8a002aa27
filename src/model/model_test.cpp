// Catches: a listed family that cannot be built; options that no kernel supports but that are accepted; ranks that miss
// or repeat rows of a tensor that joins several matrices (qkv_proj, gate_up_proj).
#include "tessera/model/model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/model/family.h"
#include "tessera/model/layers/inputs.h"
#include "tessera/model/layers/layer_builder.h"
#include "tessera/model/layers/mla.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/join_weights.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/contract/shape_rule.h"

namespace tessera {
namespace {

using test::expect_error;

ModelConfig small(std::string_view architecture, const char* changes = "{}") {
  Json json = *Json::parse(R"({"vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
                               "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
                               "v_head_dim": 20, "n_routed_experts": 4, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 40, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1})",
                           "base");
  json.set("architectures", Json(Json::Array{Json(std::string(architecture))}));
  const Result<Json> extra = Json::parse(changes, "changes");
  EXPECT_TRUE(extra.ok()) << changes;
  for (const auto& [key, value] : extra.value().as_object()) json.set(key, value);
  if (architecture.find("VL") != std::string_view::npos) {
    json.set("image_token_id", 60).set("head_dim", 16);
    json.set("rope_scaling", *Json::parse(R"({"rope_type": "default", "mrope_section": [2, 3, 3]})", "rope"));
    json.set("vision_config", *Json::parse(R"({"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
        "out_hidden_size": 64, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1],
        "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1]})",
                                           "tower"));
  }
  if (architecture.starts_with("Qwen2VL"))
    json.set(
        "vision_config",
        *Json::parse(R"({"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 14})", "tower"));
  const Result<ModelConfig> config = ModelConfig::from_json(json, "config.json", built_in_families());
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.value();
}

TEST(BuildModel, BuildsEveryFamily) {
  for (const ModelFamily& family : built_in_families().all()) {
    SCOPED_TRACE(family.architecture);
    const Result<ModelGraphs> graphs = build_model(small(family.architecture), {}, built_in_ops(), built_in_families());
    ASSERT_TRUE(graphs.ok()) << graphs.status().to_string();
    const bool latents = family.architecture.find("Deepseek") == 0 || family.architecture == "Glm4MoeLiteForCausalLM";
    EXPECT_EQ(graphs->body.states.size(), latents ? 2u : 4u);
    const bool windows = family.architecture.starts_with("Gemma2") || family.architecture.starts_with("Gemma4") ||
                         family.architecture.starts_with("GptOss");
    EXPECT_EQ(graphs->body.cache_groups.size(), windows ? 2u : 1u);
  }
}

// Routers recognise padding by slot 0. In most cache groups only padding has slot 0. In a state group, measurement
// batches also give slot 0 to tokens that are not padding, so routers must not read the slots of a state group.
TEST(BuildModel, RoutersReadPaddingFromTokenSlots) {
  const ModelConfig config = small("Qwen3NextForCausalLM", R"({"num_hidden_layers": 4, "num_experts": 4})");
  const ir::Graph body = build_model(config, {}, built_in_ops(), built_in_families())->body;
  EXPECT_EQ(body.cache_groups.at(0).kind, ir::CacheGroup::Kind::kState);
  int routers = 0;
  for (const ir::Node& node : body.nodes) {
    if (node.op != "moe_route") continue;
    ++routers;
    EXPECT_EQ(body.value(node.operands[1]).name, "slots.full");
  }
  EXPECT_EQ(routers, 4);
}

// A page has one row for each token and layer. The row's size does not depend on the number of heads or ranks.
TEST(BuildModel, LatentsAreCachedOnceForAllHeads) {
  const ModelConfig config = small("DeepseekV3ForCausalLM");
  for (const int ranks : {1, 2}) {
    const ModelGraphs graphs = *build_model(config, {.kv_cache_dtype = ir::DType::kBFloat16, .tp_size = ranks},
                                            built_in_ops(), built_in_families());
    const ir::CacheGroup& group = graphs.body.cache_groups.at(0);
    EXPECT_EQ(group.kind, ir::CacheGroup::Kind::kLatent);
    EXPECT_THAT(group.layers, ::testing::ElementsAre(0, 1));
    for (const ir::ValueId state : graphs.body.states)
      EXPECT_EQ(graphs.body.value(state).type.to_string(), "bf16[P, 16, 40]");
  }
}

// Exactly one rank must load each row of kv_b_proj. Half of a head's rows are for keys, half for values.
TEST(BuildModel, RanksDivideTheHeadsOfLatentAttention) {
  const ModelConfig config = small("Glm4MoeLiteForCausalLM");
  for (const int ranks : {1, 2, 4}) {
    std::vector<int> loaded(4 * 32);
    for (int rank = 0; rank < ranks; ++rank) {
      const ModelGraphs graphs =
          *build_model(config, {.tp_rank = rank, .tp_size = ranks}, built_in_ops(), built_in_families());
      for (const WeightSpec& weight : graphs.weights)
        for (const WeightPart& part : weight.parts) {
          if (part.tensor != "model.layers.1.self_attn.kv_b_proj.weight") continue;
          EXPECT_EQ(part.slice.size, weight.name.ends_with("keys") ? 12 : 20);
          for (std::int64_t i = 0; i < part.slice.size; ++i) ++loaded[static_cast<std::size_t>(part.slice.begin + i)];
        }
    }
    EXPECT_THAT(loaded, ::testing::Each(1)) << ranks << " ranks";
  }
}

// If the ranks can share the vocabulary equally, each rank has a slice of the embedding and a slice of the LM head.
// Otherwise each rank has the whole embedding and the whole LM head. A tied LM head uses the memory of the embedding.
TEST(BuildModel, RanksDivideTheVocabulary) {
  const char* const kTable = "model.embed_tokens.weight";
  for (const bool tied : {false, true})
    for (const std::int64_t vocabulary : {512, 510}) {
      ModelConfig config = small("LlamaForCausalLM", tied ? R"({"tie_word_embeddings": true})" : "{}");
      config.vocab_size = vocabulary;
      const ModelGraphs graphs =
          *build_model(config, {.tp_rank = 3, .tp_size = 4}, built_in_ops(), built_in_families());
      const bool sliced = vocabulary == 512;
      std::map<std::string, std::pair<std::int64_t, std::int64_t>> rows;  // tensor → first row and number of rows
      for (const WeightSpec& weight : graphs.weights)
        for (const WeightPart& part : weight.parts)
          if (part.tensor == kTable || part.tensor == "lm_head.weight")
            rows[weight.name] = {part.slice.begin, *weight.type.shape[0].constant()};
      const std::pair<std::int64_t, std::int64_t> expected =
          sliced ? std::pair{std::int64_t{384}, std::int64_t{128}} : std::pair{std::int64_t{0}, vocabulary};
      EXPECT_EQ(rows.size(), tied ? 1U : 2U);
      for (const auto& [name, range] : rows) EXPECT_EQ(range, expected) << name;
      EXPECT_EQ(graphs.head.find_value(kTable) != nullptr, tied);
      const auto embedding = std::ranges::find(graphs.body.nodes, "embedding", &ir::Node::op);
      ASSERT_NE(embedding, graphs.body.nodes.end());
      EXPECT_EQ(embedding->attribute_or("first_row", std::int64_t{-1}), sliced ? 384 : -1);
      EXPECT_EQ(std::next(embedding)->op == "all_reduce", sliced);
    }
}

// The family's body declares the whole embedding table, but with several ranks the tied LM head is a slice of the
// table. If build_model() accepted this, rank 1 would use the first rows of the table as its slice.
TEST(BuildModel, RefusesAWeightThatDiffersInTheHead) {
  FamilyRegistry families;
  ModelFamily family = *built_in_families().find("LlamaForCausalLM");
  family.architecture = "OwnTable";
  family.build_body = [](LayerBuilder& b, const ModelConfig& config) {
    const TokenInputs inputs = declare_token_inputs(b, config);
    const ir::ValueId table = b.matrix(b.tensor("embed_tokens.weight"), config.vocab_size, config.hidden_size);
    return b.graph.op("embedding", {inputs.ids, table});
  };
  ASSERT_TRUE(families.add(family).ok());
  ModelConfig config = small("LlamaForCausalLM", R"({"tie_word_embeddings": true})");
  config.architecture = "OwnTable";
  EXPECT_TRUE(build_model(config, {}, built_in_ops(), families).ok());
  expect_error(build_model(config, {.tp_rank = 1, .tp_size = 2}, built_in_ops(), families), StatusCode::kInternal,
               {"the weight model.embed_tokens.weight is f32[256, 64]", "from 256 of dimension 0 in the head",
                "f32[512, 64]", "from 0 of dimension 0 in a graph before it"});
}

// Two graphs that share a weight by name must declare the same rows of the tensor. Otherwise the second graph would
// read the rows of the first graph.
TEST(BuildModel, WeightsWithTheSameNameAreShared) {
  const auto weight = [](TensorSlice slice, Storage storage = {}) {
    WeightSpec spec{.name = "w"};
    spec.type = {ir::DType::kFloat32, {ir::Dim(2), ir::Dim(3)}};
    spec.parts.push_back({.tensor = "t", .shape = {4, 3}, .slice = slice, .storage = std::move(storage)});
    std::vector<WeightSpec> weights;
    weights.push_back(std::move(spec));
    return weights;
  };
  std::vector<WeightSpec> all;
  ASSERT_TRUE(join_weights("body", weight({.begin = 0, .size = 2}), all).ok());
  EXPECT_TRUE(join_weights("head", weight({.begin = 0, .size = 2}), all).ok());
  EXPECT_EQ(all.size(), 1U);
  expect_error(join_weights("head", weight({.begin = 2, .size = 2}), all), StatusCode::kInternal,
               {"w is f32[2, 3] of t (plain) from 2 of dimension 0 in the head", "from 0 of dimension 0"});
  expect_error(join_weights("head", weight({.begin = 0, .size = 2}, TransposedStorage{}), all), StatusCode::kInternal,
               {"t (transposed) from 0", "t (plain) from 0"});
}

// Each rank must read only the tensors of its own experts. With four ranks and ep_size 2, two ranks have the same four
// experts, and each of the two ranks has half of every such expert.
TEST(BuildModel, RanksDivideTheExperts) {
  const ModelConfig config = small("Qwen3MoeForCausalLM", R"({"num_experts": 8, "moe_intermediate_size": 32})");
  const std::int64_t parameters =
      parameter_count(build_model(config, {}, built_in_ops(), built_in_families())->weights);
  std::map<std::string, int> readers;
  for (int rank = 0; rank < 4; ++rank) {
    const ModelGraphs graphs =
        *build_model(config, {.tp_rank = rank, .tp_size = 4, .ep_size = 2}, built_in_ops(), built_in_families());
    EXPECT_EQ(parameter_count(graphs.weights), parameters);
    std::set<std::string> read;
    for (const WeightSpec& weight : graphs.weights)
      for (const WeightPart& part : weight.parts)
        if (part.tensor.starts_with("model.layers.1.mlp.experts.")) read.insert(part.tensor);
    EXPECT_EQ(read.size(), 4U * 3);
    EXPECT_TRUE(read.contains("model.layers.1.mlp.experts." + std::to_string(rank / 2 * 4) + ".down_proj.weight"));
    for (const std::string& tensor : read) ++readers[tensor];
    for (const ir::Node& node : graphs.body.nodes) {
      if (node.op == "moe_route") {
        EXPECT_EQ(node.attribute_or("first_expert", std::int64_t{-1}), rank / 2 * 4);
        EXPECT_EQ(node.attribute_or("local_experts", std::int64_t{-1}), 4);
      }
      if (node.op == "moe_experts") {
        EXPECT_EQ(node.attribute_or("routed_experts", std::int64_t{-1}), 8);
      }
    }
  }
  EXPECT_EQ(readers.size(), 8U * 3);
  for (const auto& [tensor, count] : readers) EXPECT_EQ(count, 2) << tensor;
}

TEST(BuildModel, GgufExpertsBecomeCodesOfTheirOwnTypes) {
  const ModelConfig config =
      small("Qwen3MoeForCausalLM", R"({"hidden_size": 512, "num_experts": 4, "moe_intermediate_size": 256})");
  ModelOptions options{.block_codes = true};
  options.stored_blocks = [](std::string_view tensor) -> std::optional<BlockType> {
    if (tensor.find(".experts.") == std::string_view::npos) return std::nullopt;
    return tensor.ends_with("down_proj.weight") ? BlockType::kQ6_K : BlockType::kQ4_K;
  };
  const auto experts_of = [&](const ModelGraphs& graphs) -> const ir::Node& {
    return *std::ranges::find(graphs.body.nodes, "moe_experts", &ir::Node::op);
  };
  const ModelGraphs alone = *build_model(config, options, built_in_ops(), built_in_families());
  const ir::Node& experts = experts_of(alone);
  const auto type_of = [&](std::size_t operand) {
    return alone.body.values[experts.operands[operand].index()].type.to_string();
  };
  EXPECT_EQ(string_attribute(experts, "values", ""), "int4");
  EXPECT_EQ(string_attribute(experts, "scales", ""), "pairs");
  EXPECT_EQ(string_attribute(experts, "down_values", ""), "int8");
  EXPECT_EQ(string_attribute(experts, "down_scales", ""), "f16");
  EXPECT_EQ(type_of(3), "u8[2048, 256]");
  EXPECT_EQ(type_of(4), "u8[2048, 256]");
  EXPECT_EQ(type_of(5), "f16[2048, 32]");
  EXPECT_EQ(type_of(6), "f16[2048, 16]");

  // With two ranks, each rank has 128 of the 256 columns of the down matrix. In each row, these 128 columns are half of
  // a block, or eight groups of 16 columns.
  options.tp_size = 2;
  const ModelGraphs half = *build_model(config, options, built_in_ops(), built_in_families());
  EXPECT_EQ(half.body.values[experts_of(half).operands[4].index()].type.to_string(), "u8[2048, 128]");
  EXPECT_EQ(half.body.values[experts_of(half).operands[6].index()].type.to_string(), "f16[2048, 8]");
  options.block_codes = false;
  const ModelGraphs whole = *build_model(config, options, built_in_ops(), built_in_families());
  EXPECT_FALSE(experts_of(whole).attribute_or("quantised", false));
}

TEST(BuildModel, RefusesPartsOfTheExpertsThatDoNotDivide) {
  const ModelConfig mixture = small("Qwen3MoeForCausalLM", R"({"num_experts": 6, "moe_intermediate_size": 32})");
  const auto build = [](const ModelConfig& config, int ranks, int parts) {
    return build_model(config, {.tp_size = ranks, .ep_size = parts}, built_in_ops(), built_in_families());
  };
  EXPECT_TRUE(build(mixture, 2, 2).ok());
  test::expect_error(build(mixture, 4, 4), StatusCode::kInvalidArgument,
                     {"ep_size", "6 experts", "do not divide into 4 equal parts"});
  test::expect_error(build(mixture, 4, 3), StatusCode::kInvalidArgument,
                     {"ep_size: 3", "must divide tp_size, which is 4"});
  test::expect_error(build(mixture, 1, 2), StatusCode::kInvalidArgument,
                     {"ep_size: 2", "must divide tp_size, which is 1"});
  test::expect_error(build(small("Qwen3ForCausalLM"), 2, 2), StatusCode::kInvalidArgument,
                     {"ep_size: 2", "the model has no experts"});
}

// DeepSeek's YaRN multiplies the scores by mscale². It also multiplies cosines and sines by a quotient of two factors.
// This quotient is 1 in this test.
TEST(BuildModel, LatentScoresAreScaledAsDeepSeekDoes) {
  const auto scale = [](const char* changes) {
    return latent_attention_scale(small("DeepseekV2ForCausalLM", changes));
  };
  const double plain = 1 / std::sqrt(20.0);
  EXPECT_NEAR(scale("{}"), plain, 1e-12);
  const char* kYarn = R"({"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707,
                                           "original_max_position_embeddings": 64}})";
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_NEAR(scale(kYarn), plain * mscale * mscale, 1e-12);
  EXPECT_EQ(attention_scaling(small("DeepseekV2ForCausalLM", kYarn).rope), 1.0F);
  EXPECT_NEAR(scale(R"({"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 64}})"),
              plain, 1e-12);
}

TEST(BuildModel, TypesOfWeightsActivationsAndCacheAreIndependent) {
  const ModelConfig config = small("LlamaForCausalLM");
  const ModelOptions half_cache{.dtype = ir::DType::kFloat32, .kv_cache_dtype = ir::DType::kBFloat16};
  const ModelGraphs graphs = *build_model(config, half_cache, built_in_ops(), built_in_families());
  for (const ir::ValueId state : graphs.body.states)
    EXPECT_EQ(graphs.body.value(state).type.dtype, ir::DType::kBFloat16);
  EXPECT_EQ(graphs.body.value(graphs.body.outputs[0]).type.dtype, ir::DType::kFloat32);
  for (const WeightSpec& weight : graphs.weights) EXPECT_EQ(weight.type.dtype, ir::DType::kFloat32);

  expect_error(build_model(config, {.weight_dtype = ir::DType::kBFloat16}, built_in_ops(), built_in_families()),
               StatusCode::kUnimplemented, {"weights of type bf16", "activations of type f32", "accepted: f32"});
  expect_error(build_model(config, {.kv_cache_dtype = ir::DType::kInt32}, built_in_ops(), built_in_families()),
               StatusCode::kUnimplemented, {"KV cache of type i32", "bf16"});
}

TEST(BuildModel, RefusesRanksThatHeadsDoNotDivideAmong) {
  expect_error(build_model(small("LlamaForCausalLM"), {.tp_size = 3}, built_in_ops(), built_in_families()),
               StatusCode::kInvalidArgument, {"num_attention_heads is 4", "3 ranks"});
}

// Each row of gate_up_proj and each query row of qkv_proj must be loaded by exactly one rank. There are two KV heads,
// so on four ranks each KV head is loaded by two ranks.
TEST(BuildModel, RanksHoldEveryRowOfAJointTensor) {
  const ModelConfig config = small("Phi3ForCausalLM");
  for (const int ranks : {1, 2, 4}) {
    std::map<std::string, std::vector<int>> loaded;
    for (int rank = 0; rank < ranks; ++rank) {
      const ModelGraphs graphs =
          *build_model(config, {.tp_rank = rank, .tp_size = ranks}, built_in_ops(), built_in_families());
      for (const WeightSpec& weight : graphs.weights)
        for (const WeightPart& part : weight.parts) {
          if (part.slice.dim != 0 || part.slice.size < 0) continue;
          std::vector<int>& rows = loaded[part.tensor];
          rows.resize(static_cast<std::size_t>(part.shape[0]));
          for (std::int64_t i = 0; i < part.slice.size; ++i) ++rows[static_cast<std::size_t>(part.slice.begin + i)];
        }
    }
    const std::vector<int>& qkv = loaded["model.layers.1.self_attn.qkv_proj.weight"];
    ASSERT_EQ(qkv.size(), 128u);
    for (std::size_t row = 0; row < qkv.size(); ++row)
      EXPECT_EQ(qkv[row], row >= 64 && ranks == 4 ? 2 : 1) << row << ": two KV heads on " << ranks << " ranks";
    EXPECT_THAT(loaded["model.layers.1.mlp.gate_up_proj.weight"], ::testing::Each(1));
  }
}

// The tensor is stored as [in, out], as in GPT-2's Conv1D, but each rank needs a slice of the matrix [out, in].
TEST(LayerBuilder, TakesMatricesThatAreStoredTransposed) {
  const test::ScratchDir dir;
  std::vector<float> stored;  // [in = 2, out = 4]; element (out, in) = 10 · out + in
  for (int in = 0; in < 2; ++in)
    for (int out = 0; out < 4; ++out) stored.push_back(static_cast<float>(10 * out + in));
  ASSERT_TRUE(write_safetensors(dir.path() + "/model.safetensors",
                                std::vector<StoredTensor>{
                                    {"c_fc.weight", StoredDtype::kF32, {2, 4}, std::as_bytes(std::span(stored))}})
                  .ok());
  LayerBuilder b("test", {.tp_rank = 1, .tp_size = 2}, built_in_ops());
  const ir::ValueId x = b.graph.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, 2}});
  b.graph.output(
      b.linear("fc", x, {{.tensor = "c_fc", .rows = 4, .storage = TransposedStorage{}}}, false, Parallel::kColumn));
  ASSERT_TRUE(b.graph.finish().ok());
  const std::unique_ptr<CpuDevice> device = *CpuDevice::create({.threads = 1});
  const Result<Weights> weights =
      Weights::load(b.take_weights(), checkpoint_source(*Checkpoint::open(dir.path())), *device, false);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  std::vector<float> loaded(4);
  std::memcpy(loaded.data(), weights->addresses().at("fc.weight").raw(), loaded.size() * sizeof(float));
  EXPECT_THAT(loaded, ::testing::ElementsAre(20, 21, 30, 31));
}

// A weight may be padded with zero columns up to the width of x, and with zero rows up to the width of the next
// linear's input. The tensors in the checkpoint keep their shapes.
TEST(LayerBuilder, PadsBlocksWithZeros) {
  LayerBuilder b("test", {}, built_in_ops());
  const ir::ValueId x = b.graph.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, 8}});
  const ir::ValueId y =
      b.linear("up", x, {{.tensor = "a", .rows = 5, .padded_rows = 8, .cols = 6}, {.tensor = "b", .rows = 8}}, true,
               Parallel::kNone);
  EXPECT_EQ(b.graph.type(y).to_string(), "f32[T, 16]");
  b.graph.output(y);
  ASSERT_TRUE(b.graph.finish().ok());
  const std::vector<WeightSpec> weights = b.take_weights();
  ASSERT_EQ(weights.size(), 2U);
  using Sizes = std::vector<std::int64_t>;
  EXPECT_EQ(weights[0].type.to_string(), "f32[16, 8]");
  EXPECT_EQ(weights[0].parts[0].shape, (Sizes{5, 6}));
  EXPECT_EQ(weights[0].parts[0].padded, (Sizes{8, 8}));
  EXPECT_EQ(weights[0].parts[1].padded, Sizes{});
  EXPECT_EQ(weights[1].type.to_string(), "f32[16]");
  EXPECT_EQ(weights[1].parts[0].shape, (Sizes{5}));
  EXPECT_EQ(weights[1].parts[0].padded, (Sizes{8}));

  LayerBuilder shared("test", {.tp_rank = 0, .tp_size = 2}, built_in_ops());
  const ir::ValueId z = shared.graph.input("x", {ir::DType::kFloat32, {ir::Symbol::kTokens, 8}});
  shared.graph.output(shared.linear("up", z, {{.tensor = "a", .rows = 6, .padded_rows = 8}}, true, Parallel::kColumn));
  EXPECT_THAT(shared.graph.finish().status().message(), ::testing::HasSubstr("that ranks share out"));
}

TEST(BuildModel, LongRopeTakesTheFactorsOfItsContext) {
  const ModelConfig config = small("Phi3ForCausalLM", R"({"original_max_position_embeddings": 1024,
      "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                       "long_factor": [2, 2, 2, 2, 2, 2, 2, 2]}})");
  const auto first_frequency = [&](std::int64_t context_length) {
    const ModelGraphs graphs =
        *build_model(config, {.context_length = context_length}, built_in_ops(), built_in_families());
    for (const WeightSpec& weight : graphs.weights)
      if (weight.name == "rope.inv_freq") return weight.constant.at(0);
    return 0.0F;
  };
  EXPECT_EQ(first_frequency(1024), 1.0F);
  EXPECT_EQ(first_frequency(1025), 0.5F);
  EXPECT_EQ(first_frequency(0), 0.5F) << "the model's own 2048";
}

}  // namespace
}  // namespace tessera
