// Catches: settings of GPTQ or AWQ whose groups, zero points or column order are read differently than their exporter
// writes them.
#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::format_of;
using test::formats_of;
using Spelling = WeightFormat::Spelling;
using Values = WeightFormat::Values;

TEST(GptqSettings, StoreZeroPointsAlsoIfSymmetric) {
  const WeightFormat first =
      format_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": false})");
  EXPECT_EQ(first, (WeightFormat{.values = Values::kInt4,
                                 .spelling = Spelling::kGptq,
                                 .block_rows = 1,
                                 .block_cols = 128,
                                 .zeros = true,
                                 .zeros_less_one = true}));
  EXPECT_EQ(describe(first), "int4, groups of 128, zero points");
}

TEST(GptqSettings, SecondFormStoresZeroPointsAsTheyAre) {
  for (const char* key : {"checkpoint_format", "format"}) {
    Json settings = *Json::parse(
        R"({"quant_method": "gptq_marlin", "bits": 4, "group_size": -1, "desc_act": true, "dynamic": {}})", "");
    settings.set(key, "gptq_v2");
    const WeightFormats formats = formats_of(settings.dump().c_str());
    EXPECT_EQ(formats.method(), "gptq");
    const WeightFormat format = format_of(formats);
    EXPECT_TRUE(format.zeros && !format.zeros_less_one && format.ordered) << key;
    EXPECT_EQ(format.block_cols, 0) << "all columns";
    EXPECT_EQ(describe(format), "int4, a scale for each row, zero points, ordered");
  }
}

TEST(GptqSettings, SayWhetherTheHeadIsQuantised) {
  EXPECT_TRUE(format_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 32})", "lm_head").is_unquantised());
  EXPECT_FALSE(format_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "lm_head": true})", "lm_head")
                   .is_unquantised());
}

TEST(GptqSettings, MayListTheModulesOfALayer) {
  const WeightFormats formats = formats_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 32,
      "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.up_proj", "mlp.down_proj"]]})");
  EXPECT_FALSE(format_of(formats, "model.layers.1.mlp.down_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "model.layers.1.self_attn.k_proj").is_unquantised());
}

TEST(AwqSettings, ReadBothSpellings) {
  const WeightFormat format{
      .values = Values::kInt4, .spelling = Spelling::kAwq, .block_rows = 1, .block_cols = 64, .zeros = true};
  const WeightFormats formats = formats_of(R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
      "zero_point": true, "modules_to_not_convert": ["visual", "mlp.gate"]})");
  EXPECT_EQ(formats.method(), "awq");
  EXPECT_EQ(format_of(formats), format);
  EXPECT_TRUE(format_of(formats, "visual.blocks.0.attn.qkv").is_unquantised());
  EXPECT_TRUE(format_of(formats, "lm_head").is_unquantised());
  EXPECT_EQ(format_of(R"({"quant_method": "awq_marlin", "w_bit": 4, "q_group_size": 64, "version": "GEMM"})"), format);
}

TEST(Int4Settings, RefuseWithFieldValueAndWhatIsAccepted) {
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  constexpr auto kUnknown = StatusCode::kUnimplemented;
  expect_refused({
      {R"({"quant_method": "gptq", "bits": 8, "group_size": 128})",
       kUnknown,
       {"quantization_config.bits", "is 8", "accepted: 4"}},
      {R"({"quant_method": "gptq", "group_size": 128})", kUnknown, {"bits", "missing"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 16})",
       kUnknown,
       {"group_size", "16", "-1 (all columns), 32, 64, 128"}},
      {R"({"quant_method": "gptq", "bits": 4})", kUnknown, {"group_size", "missing"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"})",
       kUnknown,
       {"checkpoint_format", "marlin", "gptq_v2"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "is_marlin_format": true})",
       kUnknown,
       {"is_marlin_format", "false"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "pack_dtype": "int8"})",
       kUnknown,
       {"pack_dtype", "int8", "int32"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*gate.*": {}}})",
       kUnknown,
       {"dynamic", "single modules"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": 1})",
       kWrong,
       {"desc_act", "true or false"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": ["up_proj"]})",
       kWrong,
       {"modules_in_block", "lists"}},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"})",
       kUnknown,
       {"version", "gemv", "gemm"}},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": false})",
       kUnknown,
       {"zero_point", "true"}},
      {R"({"quant_method": "awq", "w_bit": 3, "group_size": 128})", kUnknown, {"w_bit", "3"}},
  });
}

}  // namespace
}  // namespace tessera
