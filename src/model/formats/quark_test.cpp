// Catches: Quark's settings that describe another format but are read as MXFP4; linears that count as quantised
// although they are on the list of unquantised modules.
#include <fmt/format.h>

#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::format_of;
using test::formats_of;

// Returns Quark's settings. `weight` is the text of the members of "weight". `more` is the text of further members at
// the top level.
std::string quark(const std::string& weight, const std::string& more = "") {
  return fmt::format(R"({{"quant_method": "quark", "layer_quant_config": {{}}, "exclude": ["lm_head", "*self_attn*"],
      "global_quant_config": {{"input_tensors": {{"dtype": "fp4", "is_dynamic": true}}, "output_tensors": null,
      "bias": null, "weight": {{{}}}}}{}}})",
                     weight, more);
}

constexpr const char* kWeight =
    R"("dtype": "fp4", "qscheme": "per_group", "ch_axis": -1, "group_size": 32, "scale_format": "e8m0", "is_dynamic": false)";

TEST(Quark, ReadsMxfp4) {
  const WeightFormats formats = formats_of(quark(kWeight).c_str());
  EXPECT_EQ(formats.method(), "quark");
  EXPECT_EQ(formats.kind(), std::nullopt) << "NVFP4 at the start is another format";
  const WeightFormat format = format_of(formats, "model.layers.3.mlp.experts.7.up_proj");
  EXPECT_EQ(format, (WeightFormat{.values = WeightFormat::Values::kE2M1,
                                  .spelling = WeightFormat::Spelling::kMxfp4,
                                  .block_rows = 1,
                                  .block_cols = 32}));
  EXPECT_EQ(describe(format), "MXFP4, groups of 32");
  EXPECT_TRUE(format_of(formats, "model.layers.3.self_attn.q_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "lm_head").is_unquantised());
}

TEST(Quark, RefusesOtherFormatsByName) {
  constexpr auto kUnknown = StatusCode::kUnimplemented;
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  const std::string place = "quantization_config.global_quant_config.weight.";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {quark(R"("dtype": "fp8_e4m3")"), {place + "dtype", "fp8_e4m3", "fp4"}},
      {quark(R"("dtype": "fp4", "qscheme": "per_tensor")"), {place + "qscheme", "per_tensor", "per_group"}},
      {quark(R"("dtype": "fp4", "qscheme": "per_group", "scale_format": "e4m3")"), {"scale_format", "e4m3", "e8m0"}},
      {quark(R"("dtype": "fp4", "qscheme": "per_group", "scale_format": "e8m0", "group_size": 16)"),
       {"group_size", "16", "32"}},
      {quark(R"("dtype": "fp4", "qscheme": "per_group", "scale_format": "e8m0", "group_size": 32, "ch_axis": 0)"),
       {"ch_axis", "0", "-1, 1"}},
      {quark(R"("dtype": "fp4", "qscheme": "per_group", "scale_format": "e8m0", "group_size": 32, "is_dynamic": true)"),
       {"is_dynamic", "true", "false"}},
      {quark(kWeight, R"(, "layer_type_quant_config": {"Linear": {}})"), {"layer_type_quant_config", "null, {}"}},
      {quark(kWeight, R"(, "algo_config": [{"name": "awq"}])"), {"algo_config", "awq"}},
  };
  for (const auto& [text, parts] : cases) expect_refused({{text.c_str(), kUnknown, parts}});
  expect_refused({
      {R"({"quant_method": "quark"})", kWrong, {"global_quant_config", "missing", "an object"}},
      {R"({"quant_method": "quark", "global_quant_config": {}})", kWrong, {"global_quant_config.weight", "an object"}},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": [1]}})", kWrong, {"weight", "[1]"}},
      {R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": 4}}})", kWrong, {"weight.dtype", "4"}},
  });
}

}  // namespace
}  // namespace tessera
