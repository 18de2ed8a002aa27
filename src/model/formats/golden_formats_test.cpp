// Catches: a format that is read from published settings but is not the format of the stored weights. Each case has the
// published settings of one small checkpoint. If the checkpoint is in the shared folder, the test also compares the
// format of every linear with the stored tensors.
#include <cstdio>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/formats/formats_test_util.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::format_of;
using test::formats_of;
using Inputs = WeightFormat::Inputs;
using Spelling = WeightFormat::Spelling;
using Values = WeightFormat::Values;

struct GoldenFormat {
  const char* name;
  const char* settings;
  const char* unquantised;  // a module that is not quantised
  WeightFormat expected;    // the format of the other modules
};

WeightFormat fp8_blocks() {
  return {.values = Values::kE4M3,
          .scale = "weight_scale_inv",
          .block_rows = 128,
          .block_cols = 128,
          .inputs = Inputs::kGroup};
}

const std::vector<GoldenFormat>& golden_formats() {
  static const std::vector<GoldenFormat> kCases = {
      {"qwen3-fp8-block",
       R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128,
           128]})",
       "lm_head", fp8_blocks()},
      {"qwen3-moe-fp8-block",
       R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128,
           128], "modules_to_not_convert": ["lm_head", "model.layers.0.input_layernorm",
           "model.layers.0.mlp.gate", "model.layers.0.post_attention_layernorm",
           "model.layers.1.input_layernorm", "model.layers.1.mlp.gate",
           "model.layers.1.post_attention_layernorm"]})",
       "model.layers.1.mlp.gate", fp8_blocks()},
      {"qwen3.5-fp8-block",
       R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128,
           128], "modules_to_not_convert": ["lm_head", "model.visual",
           "model.language_model.layers.0.linear_attn.conv1d",
           "model.language_model.layers.0.linear_attn.in_proj_a",
           "model.language_model.layers.0.linear_attn.in_proj_b",
           "model.language_model.layers.1.linear_attn.conv1d",
           "model.language_model.layers.1.linear_attn.in_proj_a",
           "model.language_model.layers.1.linear_attn.in_proj_b",
           "model.language_model.layers.2.linear_attn.conv1d",
           "model.language_model.layers.2.linear_attn.in_proj_a",
           "model.language_model.layers.2.linear_attn.in_proj_b"]})",
       "model.layers.2.linear_attn.in_proj_a", fp8_blocks()},
      {"deepseek-v3-fp8-block",
       R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128,
           128]})",
       "lm_head", fp8_blocks()},
      {"llama-ct-fp8-static",
       R"({"config_groups": {"group_0": {"input_activations": {"actorder": null, "block_structure": null,
           "dynamic": false, "group_size": null, "num_bits": 8, "observer": "minmax", "observer_kwargs": {},
           "symmetric": true, "strategy": "tensor", "type": "float"}, "output_activations": null,
           "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
           "group_size": null, "num_bits": 8, "observer": "minmax", "observer_kwargs": {}, "symmetric": true,
           "strategy": "tensor", "type": "float"}}}, "format": "float-quantized",
           "global_compression_ratio": null, "ignore": ["lm_head"], "kv_cache_scheme": null,
           "quant_method": "compressed-tensors", "quantization_status": "compressed"})",
       "lm_head",
       {.values = Values::kE4M3, .scale = "weight_scale", .inputs = Inputs::kTensor}},
      {"llama-fp8-modelopt",
       R"({"config_groups": {"group_0": {"input_activations": {"dynamic": false, "num_bits": 8,
           "type": "float"}, "weights": {"dynamic": false, "num_bits": 8, "type": "float"}}},
           "ignore": ["lm_head"], "quant_algo": "FP8", "producer": {"name": "modelopt", "version": "0.31.0"}})",
       "lm_head",
       {.values = Values::kE4M3, .scale = "weight_scale", .inputs = Inputs::kTensor}},
      {"qwen3-ct-fp8-dynamic",
       R"({"config_groups": {"group_0": {"input_activations": {"actorder": null, "block_structure": null,
           "dynamic": true, "group_size": null, "num_bits": 8, "observer": null, "observer_kwargs": {},
           "symmetric": true, "strategy": "token", "type": "float"}, "output_activations": null,
           "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
           "group_size": null, "num_bits": 8, "observer": "minmax", "observer_kwargs": {}, "symmetric": true,
           "strategy": "channel", "type": "float"}}}, "format": "float-quantized",
           "global_compression_ratio": null, "ignore": ["lm_head"], "kv_cache_scheme": null,
           "quant_method": "compressed-tensors", "quantization_status": "compressed"})",
       "lm_head",
       {.values = Values::kE4M3, .scale = "weight_scale", .block_rows = 1, .inputs = Inputs::kToken}},
      {"llama-ct-w8a8",
       R"({"config_groups": {"group_0": {"input_activations": {"actorder": null, "block_structure": null,
           "dynamic": true, "group_size": null, "num_bits": 8, "observer": null, "observer_kwargs": {},
           "symmetric": true, "strategy": "token", "type": "int"}, "output_activations": null,
           "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
           "group_size": null, "num_bits": 8, "observer": "minmax", "observer_kwargs": {}, "symmetric": true,
           "strategy": "channel", "type": "int"}}}, "format": "int-quantized", "global_compression_ratio": null,
           "ignore": ["lm_head"], "kv_cache_scheme": null, "quant_method": "compressed-tensors",
           "quantization_status": "compressed"})",
       "lm_head",
       {.values = Values::kInt8, .scale = "weight_scale", .block_rows = 1, .inputs = Inputs::kToken}},
      {"qwen3-ct-w4a16",
       R"({"config_groups": {"group_0": {"input_activations": null, "output_activations": null,
           "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
           "group_size": 32, "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "symmetric": true,
           "strategy": "group", "type": "int"}}}, "format": "pack-quantized", "global_compression_ratio": null,
           "ignore": ["lm_head"], "kv_cache_scheme": null, "quant_method": "compressed-tensors",
           "quantization_status": "compressed"})",
       "lm_head",
       {.values = Values::kInt4, .spelling = Spelling::kPacked, .block_rows = 1, .block_cols = 32}},
      {"qwen3-gptq",
       R"({"bits": 4, "group_size": 32, "damp_percent": 0.01, "desc_act": false, "static_groups": false,
           "sym": true, "true_sequential": true, "model_name_or_path": null, "model_file_base_name": "model",
           "quant_method": "gptq"})",
       "lm_head",
       {.values = Values::kInt4,
        .spelling = Spelling::kGptq,
        .block_rows = 1,
        .block_cols = 32,
        .zeros = true,
        .zeros_less_one = true}},
      {"llama-gptq-desc",
       R"({"bits": 4, "checkpoint_format": "gptq", "desc_act": true, "group_size": 32, "lm_head": false,
           "meta": {"damp_percent": 0.01, "quantizer": ["gptqmodel:1.4.0"], "true_sequential": true,
           "static_groups": false}, "pack_dtype": "int32", "quant_method": "gptq", "sym": false})",
       "lm_head",
       {.values = Values::kInt4,
        .spelling = Spelling::kGptq,
        .block_rows = 1,
        .block_cols = 32,
        .zeros = true,
        .zeros_less_one = true,
        .ordered = true}},
      {"llama-awq",
       R"({"bits": 4, "group_size": 32, "modules_to_not_convert": null, "quant_method": "awq",
           "version": "gemm", "zero_point": true})",
       "lm_head",
       {.values = Values::kInt4, .spelling = Spelling::kAwq, .block_rows = 1, .block_cols = 32, .zeros = true}},
      {"llama-ct-nvfp4",
       R"({"config_groups": {"group_0": {"input_activations": null, "output_activations": null,
           "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
           "group_size": 16, "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "symmetric": true,
           "strategy": "tensor_group", "type": "float", "scale_dtype": "torch.float8_e4m3fn",
           "zp_dtype": "torch.float8_e4m3fn"}, "format": "nvfp4-pack-quantized"}},
           "format": "nvfp4-pack-quantized", "global_compression_ratio": null, "ignore": ["lm_head"],
           "kv_cache_scheme": null, "quant_method": "compressed-tensors", "quantization_status": "compressed",
           "sparsity_config": {}, "transform_config": {}, "version": "0.12.2"})",
       "lm_head",
       {.values = Values::kE2M1, .spelling = Spelling::kNvfp4Packed, .block_rows = 1, .block_cols = 16}},
      {"qwen3-moe-ct-nvfp4",
       R"({"config_groups": {"group_0": {"input_activations": null, "output_activations": null,
           "targets": ["Linear"], "weights": {"actorder": null, "block_structure": null, "dynamic": false,
           "group_size": 16, "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "symmetric": true,
           "strategy": "tensor_group", "type": "float", "scale_dtype": "torch.float8_e4m3fn",
           "zp_dtype": "torch.float8_e4m3fn"}, "format": "nvfp4-pack-quantized"}},
           "format": "nvfp4-pack-quantized", "global_compression_ratio": null, "ignore": ["lm_head",
           "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"], "kv_cache_scheme": null,
           "quant_method": "compressed-tensors", "quantization_status": "compressed", "sparsity_config": {},
           "transform_config": {}, "version": "0.12.2"})",
       "model.layers.0.mlp.gate",
       {.values = Values::kE2M1, .spelling = Spelling::kNvfp4Packed, .block_rows = 1, .block_cols = 16}},
      {"llama-nvfp4-modelopt",
       R"({"config_groups": {"group_0": {"input_activations": {"dynamic": false, "num_bits": 4,
           "type": "float", "group_size": 16}, "weights": {"dynamic": false, "num_bits": 4, "type": "float",
           "group_size": 16}, "targets": ["Linear"]}}, "ignore": ["lm_head"], "quant_algo": "NVFP4",
           "producer": {"name": "modelopt", "version": "0.37.0"}, "quant_method": "modelopt"})",
       "lm_head",
       {.values = Values::kE2M1, .spelling = Spelling::kNvfp4, .block_rows = 1, .block_cols = 16}},
      {"qwen3-moe-nvfp4-modelopt",
       R"({"config_groups": {"group_0": {"input_activations": {"dynamic": false, "num_bits": 4,
           "type": "float", "group_size": 16}, "weights": {"dynamic": false, "num_bits": 4, "type": "float",
           "group_size": 16}, "targets": ["Linear"]}}, "ignore": ["lm_head", "model.layers.0.self_attn*",
           "model.layers.0.mlp.gate", "model.layers.1.self_attn*", "model.layers.1.mlp.gate"],
           "quant_algo": "NVFP4", "producer": {"name": "modelopt", "version": "0.37.0"},
           "quant_method": "modelopt"})",
       "model.layers.0.self_attn.q_proj",
       {.values = Values::kE2M1, .spelling = Spelling::kNvfp4, .block_rows = 1, .block_cols = 16}}};
  return kCases;
}

TEST(GoldenFormats, SettingsMeanTheirFormat) {
  for (const GoldenFormat& c : golden_formats()) {
    SCOPED_TRACE(c.name);
    const WeightFormats formats = formats_of(c.settings);
    EXPECT_TRUE(formats.any());
    EXPECT_EQ(format_of(formats, "model.layers.1.mlp.up_proj"), c.expected)
        << describe(format_of(formats, "model.layers.1.mlp.up_proj")) << " instead of " << describe(c.expected);
    EXPECT_TRUE(format_of(formats, c.unquantised).is_unquantised());
  }
}

// Checks the format of every linear of a checkpoint. A quantised linear must have the expected format in two cases: if
// the types of the stored tensors are known, and if only the settings are known. Returns the number of quantised
// linears.
int compare_linears(const GoldenFormat& c, const WeightFormats& formats, const Checkpoint& checkpoint) {
  const StoredTypeOf stored = [&](std::string_view name) -> std::optional<StoredDtype> {
    const StoredTensor* tensor = checkpoint.find(name);
    return tensor == nullptr ? std::nullopt : std::optional(tensor->dtype);
  };
  int quantised = 0;
  for (const std::string_view name : checkpoint.names()) {
    const std::size_t dot = name.rfind('.');
    const std::string_view suffix = name.substr(dot + 1);
    if (suffix != "weight" && suffix != "qweight" && suffix != "weight_packed") continue;
    const std::string_view module = name.substr(0, dot);
    const bool unquantised = is_weight_dtype(checkpoint.find(name)->dtype);
    EXPECT_EQ(format_of(formats, module, stored), unquantised ? WeightFormat() : c.expected) << module;
    if (unquantised) continue;
    EXPECT_EQ(format_of(formats, module), c.expected) << module << ", by the settings alone";
    ++quantised;
  }
  return quantised;
}

TEST(GoldenFormats, EveryLinearIsStoredAsRead) {
  const fs::path goldens = test::shared_dir() / "goldens";
  TESSERA_SKIP_WITHOUT(goldens);
  for (const GoldenFormat& c : golden_formats()) {
    SCOPED_TRACE(c.name);
    const std::string folder = (goldens / c.name).string();
    if (!fs::exists(folder)) {
      std::printf("%s is not there\n", folder.c_str());
      continue;
    }
    const Result<ModelConfig> config = ModelConfig::read(folder, built_in_families());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const int quantised = compare_linears(c, config->formats, *checkpoint);
    std::printf("%s: %d linears, %s\n", c.name, quantised, describe(c.expected).c_str());
    EXPECT_GE(quantised, 14) << "seven in each of two layers";
  }
}

// Compares the checkpoints in the repository. They cover other families and spellings than the shared checkpoints.
TEST(GoldenFormats, SmallOnesAreStoredAsRead) {
  const WeightFormat rows{.values = Values::kE4M3, .scale = "weight_scale", .block_rows = 1, .inputs = Inputs::kToken};
  const WeightFormat packed{
      .values = Values::kE2M1, .spelling = Spelling::kMxfp4Packed, .block_rows = 1, .block_cols = 32};
  WeightFormat mxfp4 = packed;
  mxfp4.spelling = Spelling::kMxfp4;
  const WeightFormat awq{
      .values = Values::kInt4, .spelling = Spelling::kAwq, .block_rows = 1, .block_cols = 32, .zeros = true};
  const WeightFormat nvfp4{.values = Values::kE2M1, .spelling = Spelling::kNvfp4, .block_rows = 1, .block_cols = 16};
  const std::tuple<const char*, WeightFormat, int> cases[] = {{"llama-fbgemm-fp8", rows, 14},
                                                              {"llama-ct-fp8-head", rows, 15},
                                                              {"llama-quark-mxfp4", mxfp4, 14},
                                                              {"qwen3-awq", awq, 14},
                                                              {"qwen3-moe-ct-mxfp4", packed, 32},
                                                              {"qwen3.5-moe-fp8-block", fp8_blocks(), 37},
                                                              {"qwen3.5-moe-nvfp4-modelopt", nvfp4, 37},
                                                              {"gemma4-nvfp4-modelopt", nvfp4, 13}};
  for (const auto& [name, expected, count] : cases) {
    SCOPED_TRACE(name);
    const std::string folder = testing::data_path(std::string("quantised/") + name);
    const Result<ModelConfig> config = ModelConfig::read(folder, built_in_families());
    ASSERT_TRUE(config.ok()) << config.status().message();
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const GoldenFormat golden{.name = name, .settings = "", .unquantised = "", .expected = expected};
    EXPECT_EQ(compare_linears(golden, config->formats, *checkpoint), count);
  }
}

TEST(GoldenFormats, PublishedSettingsAreRead) {
  const fs::path configs = test::shared_dir() / "data" / "configs" / "aiconfigurator";
  TESSERA_SKIP_WITHOUT(configs);
  const auto read = [&](const char* name) {
    return *WeightFormats::read(*Json::read_file((configs / name).string()), nullptr, name);
  };
  constexpr const char* kExpert = "model.layers.9.mlp.experts.3.up_proj";
  for (const char* name : {"Qwen--Qwen3-235B-A22B-FP8_config.json", "Qwen--Qwen3-30B-A3B-FP8_config.json"}) {
    const WeightFormats formats = read(name);
    EXPECT_EQ(describe(format_of(formats, kExpert)), "FP8 e4m3, blocks of 128 × 128");
    EXPECT_TRUE(format_of(formats, "model.layers.9.mlp.gate").is_unquantised());
  }
  for (const char* name : {"deepseek-ai--DeepSeek-V3_config.json", "deepseek-ai--DeepSeek-V3.2_config.json",
                           "moonshotai--Kimi-K2-Instruct_config.json", "Qwen--Qwen3-32B-FP8_config.json"})
    EXPECT_EQ(describe(format_of(read(name), kExpert)), "FP8 e4m3, blocks of 128 × 128") << name;
  const WeightFormats kimi = read("moonshotai--Kimi-K2.5_config.json");
  EXPECT_EQ(describe(format_of(kimi, "language_model.model.layers.9.mlp.experts.3.up_proj")), "int4, groups of 32");
  EXPECT_TRUE(format_of(kimi, "language_model.model.layers.0.mlp.up_proj").is_unquantised());
  const WeightFormats tensor = read("Qwen--Qwen3-32B-FP8-Static-PerTensor_config.json");
  EXPECT_EQ(describe(format_of(tensor)), "FP8 e4m3, one scale");
  EXPECT_EQ(tensor.kv_cache(), (KvCacheFormat{"fp8", true}));
}

}  // namespace
}  // namespace tessera
