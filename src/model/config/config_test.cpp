// Catches: a default, bias or window that is read differently than in transformers; a published config that is not
// read; malicious sizes that reach an allocation or a division.
#include "tessera/model/config/config.h"

#include <cmath>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::parameters_of;
using test::small;
using test::small_config;
using ::testing::Each;
using ::testing::ElementsAre;

// Returns whether a tensor belongs to a vision tower or a next-token layer, and not to the text model.
bool is_beside_text(const std::string& tensor) {
  return tensor.starts_with("mtp.") || tensor.starts_with("model.vision_tower.") ||
         tensor.starts_with("model.embed_vision.");
}
// Returns whether a tensor belongs to a vision tower that the config does not describe.
bool is_of_unread_tower(const ModelConfig& config, const std::string& tensor) {
  return !config.vision && tensor.starts_with("model.visual.");
}

TEST(ModelConfig, TakesDefaultsOfTheArchitecture) {
  const ModelConfig llama = *small("LlamaForCausalLM");
  EXPECT_EQ(llama.num_key_value_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.hidden_act, Activation::kSilu);
  EXPECT_FALSE(llama.tie_word_embeddings || llama.qkv_bias || llama.o_bias || llama.mlp_bias);
  EXPECT_EQ(llama.qk_norm, QkNorm::kNone);
  EXPECT_THAT(llama.sliding_windows, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(llama.rope, RopeConfig{});
  EXPECT_FALSE(llama.dtype || llama.bos_token_id || llama.pad_token_id);
  EXPECT_TRUE(llama.eos_token_ids.empty());

  const ModelConfig qwen2 = *small("Qwen2ForCausalLM", R"({"attention_bias": false})");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias || qwen2.mlp_bias);
  EXPECT_EQ(qwen2.qk_norm, QkNorm::kNone);
  const ModelConfig qwen3 = *small("Qwen3ForCausalLM");
  EXPECT_EQ(qwen3.qk_norm, QkNorm::kHead);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_FALSE(qwen3.qkv_bias || qwen3.o_bias);
  EXPECT_FALSE(small("MistralForCausalLM")->qkv_bias);
}

TEST(ModelConfig, TakesDefaultsOfOlmo2AndPhi3) {
  const ModelConfig olmo2 = *small("Olmo2ForCausalLM", R"({"mlp_bias": true})");
  EXPECT_EQ(olmo2.rms_norm_eps, 1e-5);
  EXPECT_EQ(olmo2.qk_norm, QkNorm::kRow);
  EXPECT_FALSE(olmo2.qkv_bias || olmo2.o_bias || olmo2.mlp_bias);
  EXPECT_TRUE(small("Olmo2ForCausalLM", R"({"attention_bias": true})")->o_bias);
  EXPECT_THAT(olmo2.sliding_windows, Each(0));

  const ModelConfig phi3 = *small("Phi3ForCausalLM", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_EQ(phi3.rms_norm_eps, 1e-5);
  EXPECT_EQ(phi3.qk_norm, QkNorm::kNone);
  EXPECT_FALSE(phi3.qkv_bias || phi3.o_bias || phi3.mlp_bias) << "Phi 3 has no such keys";
  EXPECT_EQ(phi3.rope, RopeConfig{});
}

// The config is like that of Phi-4-mini: only a part of each head rotates, and the window is longer than the context.
TEST(ModelConfig, ReadsLongRopeOfPhi3) {
  const ModelConfig config = *small("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.75,
      "original_max_position_embeddings": 512, "sliding_window": 262144, "rope_scaling": {"type": "longrope",
      "short_factor": [1, 1, 1, 1, 1, 1.5], "long_factor": [1, 2, 4, 8, 16, 32.5]}})");
  EXPECT_EQ(config.rope.type, RopeType::kLongRope);
  EXPECT_EQ(rotary_dim(config.rope, config.head_dim), 12);
  EXPECT_EQ(config.rope.factor, 4.0) << "2048 of 512";
  EXPECT_THAT(config.rope.long_factor, ElementsAre(1, 2, 4, 8, 16, 32.5));
  EXPECT_THAT(config.sliding_windows, Each(0));
  expect_error(small("Phi3ForCausalLM", R"({"partial_rotary_factor": 0.7})"), StatusCode::kInvalidArgument,
               {"\"partial_rotary_factor\" is 0.7", "even"});
}

TEST(ModelConfig, ReadsBiases) {
  const ModelConfig llama = *small("LlamaForCausalLM", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelConfig qwen3 = *small("Qwen3ForCausalLM", R"({"attention_bias": true, "mlp_bias": true})");
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.o_bias);
  EXPECT_FALSE(qwen3.mlp_bias) << "Qwen3 has no such key";
}

TEST(ModelConfig, SetsSlidingWindowsAsHuggingFaceDoes) {
  const auto windows = [](const char* architecture, const char* changes) {
    const Result<ModelConfig> config = small(architecture, changes);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? config->sliding_windows : std::vector<std::int64_t>{};
  };
  EXPECT_THAT(windows("MistralForCausalLM", "{}"), Each(4096));
  EXPECT_THAT(windows("MistralForCausalLM", R"({"sliding_window": null})"), Each(0));
  EXPECT_THAT(windows("MistralForCausalLM", R"({"sliding_window": 24})"), Each(24));
  EXPECT_THAT(windows("MistralForCausalLM", R"({"sliding_window": 8, "layer_types":
      ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})"),
              ElementsAre(8, 0, 8, 0));
  EXPECT_THAT(windows("Qwen2ForCausalLM", R"({"sliding_window": 24, "max_window_layers": 1})"), Each(0))
      << "switched off";
  EXPECT_THAT(
      windows("Qwen2ForCausalLM", R"({"use_sliding_window": true, "sliding_window": 24, "max_window_layers": 1})"),
      ElementsAre(0, 24, 24, 24));
  EXPECT_THAT(windows("Qwen2ForCausalLM", R"({"use_sliding_window": true, "sliding_window": 24})"), Each(0))
      << "28 layers before";
  EXPECT_THAT(windows("Qwen3ForCausalLM", R"({"use_sliding_window": true, "max_window_layers": 3})"),
              ElementsAre(0, 0, 0, 4096));
  EXPECT_THAT(windows("Qwen3ForCausalLM",
                      R"({"use_sliding_window": true, "sliding_window": 5, "max_window_layers": 0, "layer_types":
      ["full_attention", "full_attention", "sliding_attention", "full_attention"]})"),
              ElementsAre(0, 0, 5, 0));
  EXPECT_THAT(
      windows("Qwen3ForCausalLM", R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})"),
      Each(0));
  EXPECT_THAT(windows("LlamaForCausalLM", R"({"sliding_window": 24})"), Each(0)) << "Llama has no such key";
  EXPECT_THAT(windows("Phi3ForCausalLM", "{}"), Each(0));
  EXPECT_THAT(windows("Phi3ForCausalLM", R"({"sliding_window": 24})"), Each(24));
  EXPECT_THAT(windows("Phi3ForCausalLM", R"({"sliding_window": 2048})"), Each(0)) << "as long as the context";
}

TEST(ModelConfig, ReadsTokensAndTypes) {
  const ModelConfig config =
      *small("LlamaForCausalLM", R"({"bos_token_id": 1, "eos_token_id": [2, 5, 7], "pad_token_id": -1,
      "torch_dtype": "torch.float16", "dtype": "bfloat16", "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true})");
  EXPECT_EQ(config.bos_token_id, TokenId(1));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(TokenId(2), TokenId(5), TokenId(7)));
  EXPECT_FALSE(config.pad_token_id);
  EXPECT_EQ(config.dtype, StoredDtype::kBF16);
  EXPECT_EQ(config.hidden_act, Activation::kGeluTanh);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(small("LlamaForCausalLM", R"({"torch_dtype": "torch.float16"})")->dtype, StoredDtype::kF16);
  EXPECT_EQ(small("LlamaForCausalLM", R"({"eos_token_id": 3, "pad_token_id": 512})")->pad_token_id, std::nullopt)
      << "never added";
}

TEST(ModelConfig, RefusesWithFileFieldValueAndWhatIsAccepted) {
  struct Case {
    const char* changes;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const auto kWrong = StatusCode::kInvalidArgument;
  const auto kUnknown = StatusCode::kUnimplemented;
  const Case cases[] = {
      {R"({"architectures": ["GPT2LMHeadModel"]})",
       kUnknown,
       {"architectures", "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"}},
      {R"({"architectures": []})", kWrong, {"architectures", "[]"}},
      {R"({"architectures": "LlamaForCausalLM"})", kWrong, {"architectures"}},
      {R"({"architectures": null})", kWrong, {"architectures", "null"}},
      {R"({"architectures": [7]})", kWrong, {"architectures", "[7]"}},
      {R"({"quantization_config": {"quant_method": "hqq"}})", kUnknown, {"quant_method\" is \"hqq\"", "awq, "}},
      {R"({"vocab_size": 0})", kWrong, {"\"vocab_size\" is 0", "[1, 2097152]"}},
      {R"({"vocab_size": -5})", kWrong, {"\"vocab_size\" is -5"}},
      {R"({"vocab_size": null})", kWrong, {"\"vocab_size\" is null"}},
      {R"({"vocab_size": 512.0})", kWrong, {"\"vocab_size\" is 512.0", "integer"}},
      {R"({"vocab_size": "512"})", kWrong, {"\"vocab_size\" is \"512\""}},
      {R"({"vocab_size": 99999999999999999999})", kWrong, {"vocab_size"}},
      {R"({"vocab_size": 16777217})", kWrong, {"vocab_size", "16777217"}},
      {R"({"hidden_size": 0})", kWrong, {"hidden_size"}},
      {R"({"hidden_size": 9223372036854775807})", kWrong, {"hidden_size", "9223372036854775807"}},
      {R"({"hidden_size": 66})", kWrong, {"\"hidden_size\" is 66", "num_attention_heads (4)"}},
      {R"({"hidden_size": 60})", kWrong, {"\"hidden_size\" is 60", "head_dim (now 15)"}},
      {R"({"intermediate_size": -160})", kWrong, {"\"intermediate_size\" is -160"}},
      {R"({"num_hidden_layers": 1025})", kWrong, {"\"num_hidden_layers\" is 1025", "[1, 1024]"}},
      {R"({"num_hidden_layers": 0})", kWrong, {"num_hidden_layers"}},
      {R"({"num_attention_heads": 0})", kWrong, {"num_attention_heads"}},
      {R"({"num_key_value_heads": 3})", kWrong, {"\"num_key_value_heads\" is 3", "divisor", "(4)"}},
      {R"({"num_key_value_heads": 8})", kWrong, {"\"num_key_value_heads\" is 8", "divisor"}},
      {R"({"num_key_value_heads": 0})", kWrong, {"\"num_key_value_heads\" is 0"}},
      {R"({"head_dim": 15})", kWrong, {"\"head_dim\" is 15", "even"}},
      {R"({"head_dim": 0})", kWrong, {"\"head_dim\" is 0"}},
      {R"({"head_dim": 2048})", kWrong, {"\"head_dim\" is 2048", "1024"}},
      {R"({"num_attention_heads": 4096, "head_dim": 1024})", kWrong, {"\"num_attention_heads\" is 4096", "1048576"}},
      {R"({"max_position_embeddings": 0})", kWrong, {"max_position_embeddings"}},
      {R"({"rms_norm_eps": -1e-6})", kWrong, {"rms_norm_eps", "-1e-06"}},
      {R"({"rms_norm_eps": "1e-6"})", kWrong, {"rms_norm_eps"}},
      {R"({"hidden_act": "relu"})", kUnknown, {"\"hidden_act\" is \"relu\"", "silu", "gelu_pytorch_tanh"}},
      {R"({"hidden_act": 1})", kWrong, {"hidden_act"}},
      {R"({"tie_word_embeddings": 1})", kWrong, {"\"tie_word_embeddings\" is 1", "true or false"}},
      {R"({"attention_bias": "no"})", kWrong, {"\"attention_bias\" is \"no\""}},
      {R"({"sliding_window": 0})", kWrong, {"\"sliding_window\" is 0"}},
      {R"({"sliding_window": -1})", kWrong, {"\"sliding_window\" is -1"}},
      {R"({"layer_types": ["full_attention"]})", kWrong, {"layer_types", "num_hidden_layers (4)"}},
      {R"({"layer_types": ["full_attention", "full_attention", "full_attention", 4]})", kWrong, {"layer_types"}},
      {R"({"layer_types": ["full_attention", "full_attention", "full_attention", "linear_attention"]})",
       kUnknown,
       {"layer_types", "linear_attention"}},
      {R"({"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]})",
       kUnknown,
       {"layer_types", "LlamaForCausalLM"}},
      {R"({"torch_dtype": "int8"})", kUnknown, {"\"torch_dtype\" is \"int8\"", "bfloat16"}},
      {R"({"dtype": 16})", kWrong, {"\"dtype\" is 16"}},
      {R"({"eos_token_id": 512})", kWrong, {"\"eos_token_id\" is 512", "[0, 511]"}},
      {R"({"eos_token_id": [2, -1]})", kWrong, {"\"eos_token_id\" is [2, -1]"}},
      {R"({"eos_token_id": "</s>"})", kWrong, {"eos_token_id"}},
      {R"({"bos_token_id": [1, 2]})", kWrong, {"bos_token_id"}},
      {R"({"pad_token_id": -2})", kWrong, {"\"pad_token_id\" is -2"}},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})", kUnknown, {"rope_scaling.type", "dynamic"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.changes);
    std::vector<std::string> parts = c.parts;
    parts.insert(parts.end(), {"m/config.json", "accepted: "});
    expect_error(small("LlamaForCausalLM", c.changes), c.code, parts);
  }
  expect_error(small("Qwen2ForCausalLM", R"({"sliding_window": 24, "layer_types":
      ["sliding_attention", "full_attention", "full_attention", "full_attention"]})"),
               kWrong, {"layer_types", "use_sliding_window"});
}

TEST(ModelConfig, ReadsFolderOrFile) {
  const test::ScratchDir dir;
  expect_error(ModelConfig::read(dir.path(), built_in_families()), StatusCode::kNotFound, {dir.path(), "config.json"});
  dir.write("adapter_config.json", "{}");
  expect_error(ModelConfig::read(dir.path(), built_in_families()), StatusCode::kNotFound,
               {"no config.json", "adapter_config.json", "lora_paths"});
  expect_error(ModelConfig::read(dir.path() + "/absent", built_in_families()), StatusCode::kNotFound,
               {"absent: there is no such model", "GGUF file"});
  const std::string file = dir.write("config.json", small_config("LlamaForCausalLM").dump());
  EXPECT_EQ(ModelConfig::read(dir.path(), built_in_families())->hidden_size, 64);
  EXPECT_EQ(ModelConfig::read(file, built_in_families())->hidden_size, 64);
  expect_error(ModelConfig::read(dir.write("list.json", "[1]"), built_in_families()), StatusCode::kInvalidArgument,
               {"list.json", "array"});
  expect_error(ModelConfig::read(dir.write("cut.json", "{\"a\": "), built_in_families()), StatusCode::kInvalidArgument,
               {"cut.json"});
  expect_error(ModelConfig::read(dir.write("big.bin", std::string((16u << 20) + 1, ' ')), built_in_families()),
               StatusCode::kInvalidArgument, {"big.bin", "16777217"});
  EXPECT_FALSE(ModelConfig::read(dir.path(), built_in_families())->formats.any());
  dir.write("quantize_config.json", R"({"bits": 4, "group_size": 128})");
  EXPECT_EQ(ModelConfig::read(dir.path(), built_in_families())->formats.method(), "gptq");
  dir.write("hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  EXPECT_EQ(ModelConfig::read(dir.path(), built_in_families())->formats.method(), "modelopt");
  dir.write("hf_quant_config.json", "{}");
  expect_error(ModelConfig::read(dir.path(), built_in_families()), StatusCode::kInvalidArgument,
               {"hf_quant_config.json", "\"quantization\" is missing"});
}

TEST(ModelConfig, KnownArchitecturesAreRefusedWithWhatTheyLack) {
  expect_error(small("DeepseekV32ForCausalLM", "{}"), StatusCode::kUnimplemented,
               {"\"architectures\"", "DeepseekV32ForCausalLM is not", "sparse attention", "no operator"});
}

TEST(ModelConfig, LargestAcceptedSizesDoNotOverflow) {
  const ModelConfig config =
      *small("LlamaForCausalLM", R"({"vocab_size": 2097152, "hidden_size": 262144, "intermediate_size": 1048576,
      "num_hidden_layers": 1024, "num_attention_heads": 1024, "head_dim": 1024, "attention_bias": true, "mlp_bias": true})");
  EXPECT_GT(parameters_of(config), std::int64_t{1} << 50);
  EXPECT_LT(parameters_of(config), std::int64_t{1} << 58) << "bytes in float32 must fit too";
}

// Reads published configs. Configs of supported architectures must be read. All others must be refused with a reason.
TEST(RealConfigs, ReadOrRefusedWithAReason) {
  const fs::path configs = test::shared_dir() / "data" / "configs";
  TESSERA_SKIP_WITHOUT(configs);
  int read = 0, quantised = 0, other_architecture = 0, no_json = 0;
  for (const auto& entry : fs::recursive_directory_iterator(configs)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().string());
    const Result<ModelConfig> config = ModelConfig::read(entry.path().string(), built_in_families());
    const Result<Json> json = Json::read_file(entry.path().string());
    if (!json.ok()) {
      // Some Nemotron-H configs contain Infinity, which Python writes but JSON does not allow.
      expect_error(config, StatusCode::kInvalidArgument, {"not valid JSON", "I"});
      ++no_json;
    } else if (config.ok()) {
      EXPECT_EQ(json->find("architectures")->as_array()[0].as_string(), config->architecture);
      EXPECT_EQ(config->sliding_windows.size(), static_cast<std::size_t>(config->num_hidden_layers));
      const bool all_turn = config->rope.type != RopeType::kProportional;
      for (float f : compute_inv_freq(config->rope, config->head_dim)) EXPECT_TRUE((!all_turn || f > 0) && f <= 1);
      ++read;
      if (config->formats.any()) ++quantised;
    } else {
      expect_error(config, StatusCode::kUnimplemented, {"\"architectures\"", "LlamaForCausalLM"});
      ++other_architecture;
    }
  }
  std::printf("%d configs read, of them %d quantised; refused: %d of other architectures, %d no JSON\n", read,
              quantised, other_architecture, no_json);
  EXPECT_GE(read, 20);
  EXPECT_GE(quantised, 8);
  EXPECT_LE(no_json, 2);
}

TEST(RealConfigs, PublishedModelsHaveTheirKnownSizes) {
  const fs::path configs = test::shared_dir() / "data" / "configs";
  TESSERA_SKIP_WITHOUT(configs);
  const auto read = [&](const char* name) {
    return *ModelConfig::read((configs / name).string(), built_in_families());
  };
  // The parameter counts are those on the models' cards.
  EXPECT_EQ(parameters_of(read("mlc_preset/llama2_7b.json")), 6'738'415'616);
  EXPECT_EQ(parameters_of(read("mlc_preset/llama3_1_8b.json")), 8'030'261'248);
  EXPECT_EQ(parameters_of(read("mlc_preset/llama3_2_1b.json")), 1'235'814'400);
  EXPECT_EQ(parameters_of(read("mlc_preset/mistral_7b_v03.json")), 7'248'023'552);
  EXPECT_EQ(parameters_of(read("mlc_preset/qwen2_0_5b.json")), 494'032'768);
  EXPECT_EQ(parameters_of(read("mlc_preset/qwen3_0.6b.json")), 596'049'920);
  EXPECT_EQ(parameters_of(read("mlc_preset/olmo2_7b.json")), 7'298'617'344);
  EXPECT_EQ(parameters_of(read("mlc_preset/phi-4.json")), 3'836'021'760);
  EXPECT_THAT(read("mlc_preset/mistral_7b.json").sliding_windows, Each(4096));
  EXPECT_THAT(read("mlc_preset/llama3_1_8b.json").eos_token_ids,
              ElementsAre(TokenId(128001), TokenId(128008), TokenId(128009)));
}

// Returns the number of parameters in an element of a tensor. A byte of MXFP4 values holds two parameters, and
// quantisation scales hold none. The test below compares a checkpoint's number of parameters with the number in
// the model that the config describes. The test fails if biases, norms, tying or head sizes are read wrongly.
int parameters_of_element(const StoredTensor& tensor) {
  if (tensor.dtype != StoredDtype::kU8) return 1;
  return tensor.name.ends_with("_blocks") ? 2 : 0;
}

TEST(GoldenConfigs, CountTheParametersOfTheirCheckpoints) {
  const fs::path goldens = testing::data_path("goldens");
  int models = 0;
  for (const auto& entry : fs::directory_iterator(goldens)) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().string());
    const Result<ModelConfig> config = ModelConfig::read(entry.path().string(), built_in_families());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const SafetensorsFile file = *SafetensorsFile::open((entry.path() / "model.safetensors").string());
    std::int64_t elements = 0;
    for (const StoredTensor& tensor : file.tensors())
      if (!is_beside_text(tensor.name) && !is_of_unread_tower(*config, tensor.name))
        elements += tensor.num_elements() * parameters_of_element(tensor);
    EXPECT_EQ(parameters_of(*config), elements);
    EXPECT_EQ(config->dtype, StoredDtype::kBF16);
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(config->any_sliding_window(), name.ends_with("-swa") || name.starts_with("gemma") ||
                                                name.starts_with("gpt-oss") || name == "phi3-longrope");
    ++models;
  }
  std::printf("%d checkpoints counted\n", models);
  EXPECT_GE(models, 38);
}

// Applies deterministic mutations to texts and single values. No config may crash the reader, and an accepted config
// must be sound.
TEST(ModelConfigFuzz, NeverCrashesAndAcceptsOnlySoundConfigs) {
  std::mt19937 random(20240229);
  const char* const kArchitectures[] = {"LlamaForCausalLM",  "MistralForCausalLM", "Ministral3ForCausalLM",
                                        "Qwen2ForCausalLM",  "Qwen3ForCausalLM",   "Olmo2ForCausalLM",
                                        "Phi3ForCausalLM",   "Gemma2ForCausalLM",  "Gemma3ForCausalLM",
                                        "Gemma4ForCausalLM", "Qwen3_5ForCausalLM", "GptOssForCausalLM"};
  const Json values = *Json::parse(
      R"([null, true, -1, 0, 1, 2, 3, 7, 1024, 4294967296, 9223372036854775807, -9223372036854775808, 1e308, -1e-320,
      0.5, "", "yarn", "full_attention", [], [1], [[]], {}, {"rope_type": "yarn", "factor": 1.5, "beta_fast": 1000000, "beta_slow": 0.001},
      {"rope_type": "llama3", "factor": 1e6, "low_freq_factor": 0.001, "high_freq_factor": 1e6}])",
      "values");
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    Json json = small_config(kArchitectures[static_cast<std::size_t>(round) % std::size(kArchitectures)],
                             R"({"num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "sliding_window": 24,
        "use_sliding_window": true, "max_window_layers": 2, "rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 4,
        "original_max_position_embeddings": 64}, "torch_dtype": "bfloat16", "eos_token_id": [2, 3], "bos_token_id": 1, "tie_word_embeddings": false})");
    if (round % 2 == 0) {
      const Result<Json> changed = Json::parse(test::mutated(json.dump(), random), "mutated");
      if (!changed.ok()) continue;
      json = *changed;
    } else {
      for (int change = 0; change < 2; ++change) {
        json.set(json.as_object()[random() % json.as_object().size()].first,
                 values.as_array()[random() % values.as_array().size()]);
      }
    }
    const Result<ModelConfig> config = ModelConfig::from_json(json, "fuzz", built_in_families());
    if (!config.ok()) continue;
    ++accepted;
    ASSERT_EQ(config->num_attention_heads % config->num_key_value_heads, 0) << json.dump();
    ASSERT_EQ(config->head_dim % 2, 0) << json.dump();
    for (float f : compute_inv_freq(config->rope, config->head_dim))
      ASSERT_TRUE(std::isfinite(f) && f >= 0) << json.dump();
    ASSERT_TRUE(std::isfinite(attention_scaling(config->rope))) << json.dump();
  }
  std::printf("%d of 4000 mutated configs accepted\n", accepted);
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace tessera
