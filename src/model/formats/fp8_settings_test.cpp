// Catches: FP8 settings whose scales or unquantised modules are read differently than in transformers.
#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::format_of;
using test::formats_of;
using Values = WeightFormat::Values;
using Inputs = WeightFormat::Inputs;

TEST(Fp8Settings, ReadBlocks) {
  const WeightFormat block = format_of(R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                           "scale_fmt": "ue8m0", "weight_block_size": [64, 128]})");
  EXPECT_EQ(block, (WeightFormat{.values = Values::kE4M3,
                                 .scale = "weight_scale_inv",
                                 .block_rows = 64,
                                 .block_cols = 128,
                                 .inputs = Inputs::kGroup}));
  EXPECT_EQ(describe(block), "FP8 e4m3, blocks of 64 × 128");
}

TEST(Fp8Settings, WithoutBlocksHaveOneScale) {
  const WeightFormat dynamic = format_of(R"({"quant_method": "fp8", "weight_block_size": null})");
  EXPECT_EQ(dynamic, (WeightFormat{.values = Values::kE4M3, .scale = "weight_scale", .inputs = Inputs::kToken}));
  EXPECT_EQ(describe(dynamic), "FP8 e4m3, one scale");
  EXPECT_EQ(format_of(R"({"quant_method": "fp8", "activation_scheme": "static"})").inputs, Inputs::kTensor);
}

TEST(Fp8Settings, NeverQuantiseTheHeadOrListedModules) {
  const WeightFormats formats =
      formats_of(R"({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.gate"],
      "ignored_layers": ["model.layers.1"]})");
  EXPECT_EQ(formats.method(), "fp8");
  EXPECT_TRUE(format_of(formats, "lm_head").is_unquantised());
  EXPECT_TRUE(format_of(formats, "model.layers.0.mlp.gate").is_unquantised());
  EXPECT_TRUE(format_of(formats, "model.layers.1.mlp.up_proj").is_unquantised());
  EXPECT_FALSE(format_of(formats, "model.layers.0.mlp.gate_proj").is_unquantised());
}

TEST(Fp8Settings, ReadFbgemm) {
  const WeightFormats formats = formats_of(R"({"activation_scale_ub": 1200.0, "quant_method": "fbgemm_fp8",
      "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.down_proj"]})");
  EXPECT_EQ(formats.method(), "fbgemm_fp8");
  const WeightFormat format = format_of(formats);
  EXPECT_EQ(format, (WeightFormat{
                        .values = Values::kE4M3, .scale = "weight_scale", .block_rows = 1, .inputs = Inputs::kToken}));
  EXPECT_EQ(describe(format), "FP8 e4m3, a scale for each row");
  EXPECT_TRUE(format_of(formats, "model.layers.0.mlp.down_proj").is_unquantised());
}

TEST(Fp8Settings, RefuseWithFieldValueAndWhatIsAccepted) {
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  constexpr auto kUnknown = StatusCode::kUnimplemented;
  expect_refused({
      {R"({"quant_method": "fp8", "fmt": "e5m2"})",
       kUnknown,
       {"m/config.json", "quantization_config.fmt", "e5m2", "e4m3"}},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})",
       kWrong,
       {"weight_block_size", "[128]", "rows and columns"}},
      {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", kWrong, {"weight_block_size", "[0, 128]"}},
      {R"({"quant_method": "fp8", "weight_block_size": 128})", kWrong, {"weight_block_size", "128"}},
      {R"({"quant_method": "fp8", "activation_scheme": "none"})",
       kUnknown,
       {"activation_scheme", "none", "dynamic, static"}},
      {R"({"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": [128, 128]})",
       kUnknown,
       {"activation_scheme", "for blocks"}},
      {R"({"quant_method": "fp8", "modules_to_not_convert": "lm_head"})",
       kWrong,
       {"modules_to_not_convert", "lm_head", "a list"}},
      {R"({"quant_method": "fp8", "modules_to_not_convert": [1]})", kWrong, {"modules_to_not_convert", "[1]"}},
      {R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": -1})", kWrong, {"activation_scale_ub", "-1"}},
  });
}

}  // namespace
}  // namespace tessera
