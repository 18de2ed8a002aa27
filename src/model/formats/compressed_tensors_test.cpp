// Catches: a scheme of compressed-tensors that is read as another scheme; a scheme that is applied to linears that are
// not its targets.
#include <fmt/format.h>

#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::format_of;
using test::formats_of;
using Inputs = WeightFormat::Inputs;
using Spelling = WeightFormat::Spelling;
using Values = WeightFormat::Values;

// Returns settings with one group. `weights` is the text of the members of "weights". `group` is the text of further
// members of the group.
std::string settings(std::string_view format, std::string_view weights, std::string_view group = "") {
  return fmt::format(R"({{"quant_method": "compressed-tensors", "format": "{}", "ignore": ["lm_head"],
      "config_groups": {{"group_0": {{"targets": ["Linear"], "weights": {{{}}}{}}}}}}})",
                     format, weights, group);
}
WeightFormat read(std::string_view format, std::string_view weights, std::string_view group = "") {
  return format_of(settings(format, weights, group).c_str());
}

TEST(CompressedTensors, ReadsScaledValues) {
  WeightFormat format{.values = Values::kE4M3, .scale = "weight_scale"};
  EXPECT_EQ(read("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "tensor")"), format);
  EXPECT_EQ(read("naive-quantized", R"("num_bits": 8, "type": "float", "strategy": null)"), format);
  format.block_rows = 1;
  EXPECT_EQ(read("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "channel")"), format);
  format.block_rows = format.block_cols = 128;
  for (const char* blocks : {"[128, 128]", "\"128x128\""})
    EXPECT_EQ(
        read("float-quantized",
             fmt::format(R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": {})", blocks)),
        format);
  const WeightFormat int8{.values = Values::kInt8, .scale = "weight_scale", .block_rows = 1};
  EXPECT_EQ(read("int-quantized", R"("num_bits": 8, "type": "int", "strategy": "channel")"), int8);
  EXPECT_EQ(describe(int8), "int8, a scale for each row");
}

TEST(CompressedTensors, ReadsPackedValues) {
  WeightFormat format{.values = Values::kInt4, .spelling = Spelling::kPacked, .block_rows = 1, .block_cols = 32};
  const std::string group = R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 32)";
  EXPECT_EQ(read("pack-quantized", group), format);
  EXPECT_EQ(read("pack-quantized", group + R"(, "actorder": "weight")"), format);
  format.ordered = true;
  for (const char* order : {"\"group\"", "\"dynamic\"", "true"})
    EXPECT_EQ(read("pack-quantized", group + R"(, "actorder": )" + order), format);
  format.zeros = true;
  EXPECT_EQ(read("pack-quantized", group + R"(, "actorder": true, "symmetric": false)"), format);
  EXPECT_EQ(describe(format), "int4, groups of 32, zero points, ordered");
  EXPECT_EQ(read("pack-quantized", R"("num_bits": 4, "type": "int", "strategy": "channel")").block_cols, 0);
}

TEST(CompressedTensors, ReadsTheRoundingOfInputs) {
  const auto inputs = [](std::string_view members) {
    return read("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "channel")",
                fmt::format(R"(, "input_activations": {{"type": "float", {}}})", members))
        .inputs;
  };
  EXPECT_EQ(inputs(R"("num_bits": 8, "dynamic": false, "strategy": "tensor")"), Inputs::kTensor);
  EXPECT_EQ(inputs(R"("num_bits": 8, "dynamic": true, "strategy": "token")"), Inputs::kToken);
  EXPECT_EQ(inputs(R"("num_bits": 8, "dynamic": true, "strategy": "group", "group_size": 128)"), Inputs::kGroup);
  EXPECT_EQ(inputs(R"("num_bits": 4, "dynamic": "local", "strategy": "tensor_group", "group_size": 16)"),
            Inputs::kPlain);
  EXPECT_EQ(read("float-quantized", R"("num_bits": 8, "type": "float")", R"(, "input_activations": null)").inputs,
            Inputs::kPlain);
}

// The shortened settings of a published checkpoint that mixes FP8 and NVFP4.
TEST(CompressedTensors, ReadsAFormatForEachGroup) {
  constexpr const char* kSettings =
      R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["re:.*visual.*"],
      "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false, "symmetric": true},
      "config_groups": {
        "group_0": {"format": "float-quantized", "targets": ["re:.*self_attn[.](q|k|v|o)_proj$", "lm_head",
                    "re:.*layers[.](6|7)[.]mlp[.](gate|up|down)_proj$"],
                    "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
        "group_1": {"format": "nvfp4-pack-quantized", "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "actorder": "static"}}}})";
  const WeightFormats formats = formats_of(kSettings);
  EXPECT_EQ(formats.method(), "compressed-tensors");
  EXPECT_EQ(format_of(formats, "lm_head").values, Values::kE4M3);
  EXPECT_EQ(format_of(formats, "model.layers.0.self_attn.q_proj").values, Values::kE4M3);
  EXPECT_EQ(format_of(formats, "model.layers.7.mlp.up_proj").values, Values::kE4M3);
  EXPECT_EQ(
      format_of(formats, "model.layers.5.mlp.up_proj"),
      (WeightFormat{.values = Values::kE2M1, .spelling = Spelling::kNvfp4Packed, .block_rows = 1, .block_cols = 16}));
  EXPECT_TRUE(format_of(formats, "model.visual.blocks.0.attn.qkv").is_unquantised());
  EXPECT_EQ(formats.kv_cache(), (KvCacheFormat{"fp8", true}));
}

// Kimi K2.5's settings: only routed experts are quantised.
TEST(CompressedTensors, IgnoresByExpressions) {
  constexpr const char* kSettings = R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}})";
  const WeightFormats formats = formats_of(kSettings);
  EXPECT_FALSE(format_of(formats, "language_model.model.layers.1.mlp.experts.3.gate_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "language_model.model.layers.0.mlp.gate_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "language_model.model.layers.1.mlp.shared_experts.up_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "language_model.model.layers.1.self_attn.o_proj").is_unquantised());
  EXPECT_TRUE(format_of(formats, "language_model.lm_head").is_unquantised());
}

TEST(CompressedTensors, RefusesSchemesWithFieldValueAndWhatIsAccepted) {
  constexpr const char* kPlace = "quantization_config.config_groups.group_0.weights.";
  const std::string wide = R"("num_bits": 8, "type": "float", "strategy": "channel")";
  const std::string packed = R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": )";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {settings("pack-quantized", R"("num_bits": 8, "type": "int")"),
       {"format", "pack-quantized", "int-quantized", "8 bits of int"}},
      {settings("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "tensor_group")"),
       {"format", "mxfp4-pack-quantized", "nvfp4-pack-quantized"}},
      {settings("nvfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 32)"),
       {"format", "nvfp4-pack-quantized", "mxfp4-pack-quantized"}},
      {settings("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "channel")"),
       {"strategy", "channel", "tensor_group, group"}},
      {settings("float-quantized", R"("num_bits": 6, "type": "float")"), {kPlace, "num_bits", "6", "4, 8"}},
      {settings("float-quantized", R"("num_bits": 8, "type": "bfloat")"), {"type", "bfloat", "int, float"}},
      {settings("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "token")"),
       {"strategy", "token", "block"}},
      {settings("int-quantized", R"("num_bits": 8, "type": "int", "symmetric": false)"),
       {"symmetric", "false", "true"}},
      {settings("pack-quantized", packed + "48"), {"group_size", "48", "32, 64, 128"}},
      {settings("pack-quantized", packed + R"(32, "actorder": "random")"), {"actorder", "random", "dynamic"}},
      {settings("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 16)"),
       {"group_size", "16", "32, for group"}},
      {settings("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "group_size": 32, "symmetric": false)"),
       {"symmetric", "false", "4 bits of float"}},
      {settings("nvfp4-pack-quantized",
                R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 32)"),
       {"group_size", "32", "16"}},
      {settings("float-quantized", wide,
                R"(, "input_activations": {"num_bits": 8, "dynamic": true, "strategy": "channel"})"),
       {"input_activations.strategy", "channel"}},
      {settings("float-quantized", wide, R"(, "input_activations": {"num_bits": 8, "symmetric": false})"),
       {"input_activations.symmetric", "false"}},
      {settings("float-quantized", wide, R"(, "output_activations": {"num_bits": 8})"), {"output_activations", "null"}},
  };
  for (const auto& [text, parts] : cases) expect_refused({{text.c_str(), StatusCode::kUnimplemented, parts}});
}

TEST(CompressedTensors, RefusesWrongGroupsAndOtherChanges) {
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  constexpr auto kUnknown = StatusCode::kUnimplemented;
  expect_refused({
      {R"({"quant_method": "compressed-tensors"})", kWrong, {"config_groups", "missing"}},
      {R"({"config_groups": {}})", kWrong, {"config_groups"}},
      {R"({"config_groups": {"a": 3}})", kWrong, {"config_groups.a", "3", "an object"}},
      {R"({"config_groups": {"a": {"weights": {}}}})", kWrong, {"config_groups.a.targets", "missing", "Linear"}},
      {R"({"config_groups": {"a": {"targets": ["Linear"]}}})", kWrong, {"config_groups.a.weights", "missing"}},
      {R"({"config_groups": {"a": {"targets": ["Embedding"], "weights": {}}}})",
       kUnknown,
       {"targets", "Embedding", "only Linear"}},
      {R"({"config_groups": {"a": {"targets": ["re:("], "weights": {}}}})", kWrong, {"re:(", "targets"}},
      {R"({"config_groups": {}, "sparsity_config": {"format": "sparse-24-bitmask"}})",
       kUnknown,
       {"sparsity_config.format", "sparse-24", "dense"}},
      {R"({"config_groups": {}, "transform_config": {"config_groups": {"R1": {}}}})", kUnknown, {"transform_config"}},
      {R"({"config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128]}}}})",
       kWrong,
       {"block_structure", "[128]"}},
  });
}

}  // namespace
}  // namespace tessera
