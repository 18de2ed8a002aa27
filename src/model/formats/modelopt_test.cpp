// Catches: ModelOpt's settings that are read wrongly from either of their two files; two files that contradict each
// other but are accepted.
#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_error;
using test::expect_refused;
using test::format_of;
using test::formats_of;
using test::try_formats;
using Inputs = WeightFormat::Inputs;
using Values = WeightFormat::Values;

const WeightFormat kFp8{.values = Values::kE4M3, .scale = "weight_scale", .inputs = Inputs::kTensor};
const WeightFormat kNvfp4{
    .values = Values::kE2M1, .spelling = WeightFormat::Spelling::kNvfp4, .block_rows = 1, .block_cols = 16};

TEST(ModelOpt, ReadsEachAlgorithm) {
  EXPECT_EQ(format_of(R"({"quant_algo": "FP8"})"), kFp8) << "without quant_method";
  EXPECT_EQ(format_of(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})"), kNvfp4);
  EXPECT_EQ(format_of(R"({"quant_method": "modelopt_fp4", "quant_algo": "W4A16_NVFP4", "group_size": 16})"), kNvfp4);
  EXPECT_EQ(describe(kNvfp4), "NVFP4, groups of 16");
  const WeightFormat block = format_of(R"({"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"})");
  EXPECT_EQ(describe(block), "FP8 e4m3, blocks of 128 × 128");
  EXPECT_EQ(block.scale, "weight_scale");
  const WeightFormat rows = format_of(R"({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"})");
  EXPECT_EQ(describe(rows), "FP8 e4m3, a scale for each row");
  EXPECT_EQ(rows.inputs, Inputs::kToken);
}

TEST(ModelOpt, ReadsTheFileBesideConfigJson) {
  constexpr const char* kBeside = R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
      "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}})";
  for (const char* settings :
       {static_cast<const char*>(nullptr), R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
        R"({"quant_method": "modelopt"})"}) {
    const WeightFormats formats = formats_of(settings, kBeside);
    EXPECT_EQ(formats.method(), "modelopt");
    EXPECT_EQ(format_of(formats, "model.layers.0.mlp.up_proj"), kNvfp4);
    EXPECT_TRUE(format_of(formats, "model.layers.0.self_attn.q_proj").is_unquantised());
    EXPECT_TRUE(format_of(formats, "lm_head").is_unquantised());
    EXPECT_EQ(formats.kv_cache(), (KvCacheFormat{"fp8", true}));
  }
}

TEST(ModelOpt, MayQuantiseKeysAndValuesAlone) {
  const WeightFormats formats =
      formats_of(nullptr, R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  EXPECT_FALSE(formats.any());
  EXPECT_EQ(formats.method(), "");
  EXPECT_EQ(formats.kv_cache(), (KvCacheFormat{"fp8", true}));
}

TEST(ModelOpt, ReadsAnAlgorithmForEachLayer) {
  constexpr const char* kSettings = R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
      "ignore": ["mtp*"], "quantized_layers": {
        "model.language_model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "model.language_model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.3.self_attn.k_proj": {"quant_algo": "UNQUANTIZED"},
        "lm_head": {"quant_algo": "NVFP4", "group_size": 16}}})";
  const WeightFormats formats = formats_of(kSettings);
  EXPECT_EQ(format_of(formats, "model.language_model.layers.0.mlp.experts.7.up_proj"), kNvfp4);
  EXPECT_EQ(format_of(formats, "model.layers.3.self_attn.q_proj"), kFp8);
  EXPECT_TRUE(format_of(formats, "model.layers.3.self_attn.k_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "model.layers.0.mlp.shared_expert.up_proj").is_unquantised());
  EXPECT_EQ(format_of(formats, "lm_head"), kNvfp4);
}

TEST(ModelOpt, ReadsGroupsOfLayers) {
  constexpr const char* kSettings = R"({"quant_algo": "MIXED_PRECISION", "config_groups": {
      "group_0": {"weights": {"dynamic": false, "num_bits": 8, "type": "float"}, "targets": ["model.layers.0.self_attn.q_proj"]},
      "group_1": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["model.layers.0.mlp.up_proj"]}}})";
  const WeightFormats formats = formats_of(kSettings);
  EXPECT_EQ(format_of(formats, "model.layers.0.self_attn.q_proj"), kFp8);
  EXPECT_EQ(format_of(formats, "model.layers.0.mlp.up_proj"), kNvfp4);
  EXPECT_TRUE(format_of(formats, "model.layers.0.mlp.down_proj").is_unquantised());
}

TEST(ModelOpt, RefusesFilesThatContradict) {
  expect_error(try_formats(R"({"quant_algo": "FP8"})", R"({"quantization": {"quant_algo": "NVFP4"}})"),
               StatusCode::kInvalidArgument, {"quantization_config.quant_algo", "\"FP8\"", "\"NVFP4\""});
  expect_error(try_formats(R"({"quant_method": "fp8"})", R"({"quantization": {"quant_algo": "FP8"}})"),
               StatusCode::kInvalidArgument, {"quant_method", "\"fp8\"", "hf_quant_config.json"});
}

TEST(ModelOpt, RefusesWithFieldValueAndWhatIsAccepted) {
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  constexpr auto kUnknown = StatusCode::kUnimplemented;
  expect_refused({
      {R"({"quant_algo": "W4A16_AWQ"})", kUnknown, {"quant_algo", "W4A16_AWQ", "NVFP4", "MIXED_PRECISION"}},
      {R"({"quant_method": "modelopt"})", kUnknown, {"quant_algo", "missing"}},
      {R"({"quant_algo": "NVFP4", "group_size": 32})", kUnknown, {"group_size", "32", "16"}},
      {R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"": {"quant_algo": "FP8"}}})",
       kWrong,
       {"m/config.json", "quantized_layers", "no name"}},
      {R"({"quant_algo": "MIXED_PRECISION"})", kWrong, {"quantized_layers", "missing"}},
      {R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": "FP8"}})",
       kWrong,
       {"quantized_layers.lm_head", "quant_algo"}},
      {R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"lm_head": {"quant_algo": "W8A8_SQ_PER_CHANNEL"}}})",
       kUnknown,
       {"quantized_layers.lm_head.quant_algo", "W8A8_SQ", "UNQUANTIZED"}},
      {R"({"quant_algo": "MIXED_PRECISION", "config_groups": {"g": {"weights": {"num_bits": 8, "group_size": 32}}}})",
       kUnknown,
       {"config_groups.g.weights.num_bits", "8"}},
      {R"({"quant_algo": "FP8", "exclude_modules": {}})", kWrong, {"exclude_modules", "a list"}},
      {R"({"quant_algo": "FP8", "kv_cache_scheme": "FP6"})", kUnknown, {"kv_cache_scheme", "FP6", "FP8"}},
      {R"({"quant_method": "modelopt", "quantization": []})",
       kWrong,
       {"quantization_config.quantization", "an object"}},
  });
}

}  // namespace
}  // namespace tessera
