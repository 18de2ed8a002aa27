// Catches: a linear that is not read in the format in which it is stored; tensors that contradict the settings or each
// other but are accepted.
#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_error;
using test::format_of;
using test::formats_of;
using test::kLinear;
using test::stored_as;
using test::Suffixes;
using D = StoredDtype;

constexpr const char* kFp8Block = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
constexpr const char* kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 32})";
constexpr const char* kGptqOrdered = R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})";
constexpr const char* kAwq = R"({"quant_method": "awq", "bits": 4, "group_size": 32})";
constexpr const char* kPacked =
    R"({"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
    "strategy": "group", "group_size": 32}}}})";
constexpr const char* kPackedZeros = R"({"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4,
    "type": "int", "strategy": "group", "group_size": 32, "symmetric": false, "actorder": "group"}}}})";
constexpr const char* kInt8 =
    R"({"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int",
    "strategy": "channel"}}}})";
constexpr const char* kNvfp4Packed = R"({"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4,
    "type": "float", "strategy": "tensor_group", "group_size": 16}}}})";
constexpr const char* kNvfp4 = R"({"quant_algo": "NVFP4"})";
constexpr const char* kMxfp4Packed = R"({"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4,
    "type": "float", "strategy": "group", "group_size": 32}}}})";
constexpr const char* kMxfp4 = R"({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4",
    "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}}})";

TEST(StoredFormat, TensorsThatFitTheSettingsKeepTheFormat) {
  const std::vector<std::pair<const char*, Suffixes>> cases = {
      {kFp8Block, {{"weight", D::kF8E4M3}, {"weight_scale_inv", D::kBF16}}},
      {kGptq, {{"qweight", D::kI32}, {"scales", D::kF16}, {"qzeros", D::kI32}}},
      {kGptqOrdered, {{"qweight", D::kI32}, {"scales", D::kF16}, {"qzeros", D::kI32}, {"g_idx", D::kI32}}},
      {kAwq, {{"qweight", D::kI32}, {"scales", D::kF16}, {"qzeros", D::kI32}}},
      {kPacked, {{"weight_packed", D::kI32}, {"weight_scale", D::kBF16}, {"weight_shape", D::kI64}}},
      {kPackedZeros,
       {{"weight_packed", D::kI32},
        {"weight_scale", D::kBF16},
        {"weight_zero_point", D::kI32},
        {"weight_g_idx", D::kI32}}},
      {kInt8, {{"weight", D::kI8}, {"weight_scale", D::kF32}}},
      {kNvfp4Packed, {{"weight_packed", D::kU8}, {"weight_scale", D::kF8E4M3}, {"weight_global_scale", D::kF32}}},
      {kNvfp4, {{"weight", D::kU8}, {"weight_scale", D::kF8E4M3}, {"weight_scale_2", D::kF32}}},
      {kMxfp4Packed, {{"weight_packed", D::kU8}, {"weight_scale", D::kU8}}},
      {kMxfp4Packed, {{"weight_packed", D::kU8}, {"weight_scale", D::kF8E8M0}}},
      {kMxfp4, {{"weight", D::kU8}, {"weight_scale", D::kU8}}},
  };
  for (const auto& [settings, tensors] : cases) {
    SCOPED_TRACE(settings);
    const WeightFormats formats = formats_of(settings);
    EXPECT_EQ(format_of(formats, kLinear, stored_as(tensors)), format_of(formats));
    EXPECT_TRUE(format_of(formats, kLinear, stored_as({{"weight", D::kBF16}})).is_unquantised())
        << "though not on a list";
    EXPECT_EQ(format_of(formats, kLinear, stored_as({})), format_of(formats)) << "a missing tensor is found elsewhere";
  }
}

TEST(StoredFormat, AQuantisedModuleOnTheListIsQuantised) {
  const WeightFormats formats = formats_of(R"({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]})");
  EXPECT_TRUE(format_of(formats).is_unquantised());
  EXPECT_EQ(describe(format_of(formats, kLinear, stored_as({{"weight", D::kF8E4M3}, {"weight_scale", D::kF32}}))),
            "FP8 e4m3, one scale");
}

TEST(StoredFormat, ScalesHaveEitherName) {
  const WeightFormats formats = formats_of(R"({"quant_method": "fp8", "activation_scheme": "static"})");
  EXPECT_EQ(format_of(formats, kLinear, stored_as({{"weight", D::kF8E4M3}, {"weight_scale_inv", D::kBF16}})).scale,
            "weight_scale_inv");
}

TEST(StoredFormat, AnOrderIsReadIfItIsStored) {
  const WeightFormats formats = formats_of(kPacked);
  EXPECT_TRUE(format_of(formats, kLinear,
                        stored_as({{"weight_packed", D::kI32}, {"weight_scale", D::kBF16}, {"weight_g_idx", D::kI32}}))
                  .ordered);
}

// No group names the module, but its tensors fit the format of one of the groups.
TEST(StoredFormat, AnUnlistedModuleTakesTheGroupThatFits) {
  const WeightFormats formats = formats_of(R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {
      "a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}}})");
  EXPECT_EQ(
      describe(format_of(formats, kLinear,
                         stored_as({{"weight", D::kU8}, {"weight_scale", D::kF8E4M3}, {"weight_scale_2", D::kF32}}))),
      "NVFP4, groups of 16");
  expect_error(formats.of(kLinear, stored_as({{"weight", D::kI8}})), StatusCode::kInvalidArgument,
               {"q_proj.weight\" is I8", "F8_E4M3"});
}

TEST(StoredFormat, AMatrixIsFoundInEveryFormat) {
  for (const char* matrix : {"weight", "qweight", "weight_packed"})
    EXPECT_TRUE(has_matrix(kLinear, stored_as({{matrix, D::kU8}}))) << matrix;
  EXPECT_FALSE(has_matrix(kLinear, stored_as({{"weight_scale", D::kU8}, {"bias", D::kF32}})));
}

TEST(StoredFormat, RefusesContradictions) {
  struct Contradiction {
    const char* settings;
    Suffixes tensors;
    std::vector<std::string> parts;
  };
  const std::vector<Contradiction> cases = {
      {kFp8Block,
       {{"weight", D::kBF16}, {"weight_scale_inv", D::kF32}},
       {"q_proj.weight_scale_inv\" is F32", "no such tensor beside \"weight\" of BF16"}},
      {kFp8Block, {{"weight", D::kF8E4M3}}, {"q_proj.weight_scale_inv\" is missing", "F32, F16, BF16"}},
      {kFp8Block,
       {{"weight", D::kF8E4M3}, {"weight_scale_inv", D::kF8E8M0}},
       {"weight_scale_inv\" is F8_E8M0", "F32, F16, BF16"}},
      {kFp8Block,
       {{"weight", D::kF8E4M3}, {"weight_scale_inv", D::kF32}, {"weight_scale", D::kF32}},
       {"q_proj.weight_scale\" is F32", "either this tensor or weight_scale_inv, not both"}},
      {kFp8Block,
       {{"weight", D::kF8E5M2}, {"weight_scale_inv", D::kF32}},
       {"weight\" is F8_E5M2", "\"weight\" of F8_E4M3", "blocks of 128"}},
      {kFp8Block, {{"weight", D::kI8}, {"weight_scale_inv", D::kF32}}, {"weight\" is I8", "F8_E4M3", "BF16"}},
      {kFp8Block, {{"qweight", D::kI32}}, {"qweight\" is I32", "\"weight\" of F8_E4M3"}},
      {kGptq,
       {{"qweight", D::kI32}, {"weight", D::kF16}},
       {"q_proj.qweight\" is I32", "no such tensor beside \"weight\""}},
      {kGptq, {{"qweight", D::kI32}, {"scales", D::kF16}}, {"qzeros\" is missing", "I32"}},
      {kGptq, {{"qweight", D::kI32}, {"qzeros", D::kI32}}, {"scales\" is missing"}},
      {kGptqOrdered, {{"qweight", D::kI32}, {"scales", D::kF16}, {"qzeros", D::kI32}}, {"g_idx\" is missing", "I32"}},
      {kAwq,
       {{"qweight", D::kI64}, {"scales", D::kF16}, {"qzeros", D::kI32}},
       {"qweight\" is I64", "\"qweight\" of I32"}},
      {kAwq, {{"qweight", D::kI32}, {"scales", D::kF16}}, {"qzeros\" is missing"}},
      {kPacked,
       {{"weight_packed", D::kU8}, {"weight_scale", D::kBF16}},
       {"weight_packed\" is U8", "\"weight_packed\" of I32"}},
      {kPacked,
       {{"weight_packed", D::kI32}, {"weight_scale", D::kBF16}, {"weight_zero_point", D::kI32}},
       {"weight_zero_point\" is I32", "no such tensor", "int4, groups of 32"}},
      {kPackedZeros, {{"weight_packed", D::kI32}, {"weight_scale", D::kBF16}}, {"weight_zero_point\" is missing"}},
      {kPackedZeros,
       {{"weight_packed", D::kI32}, {"weight_scale", D::kBF16}, {"weight_zero_point", D::kI32}},
       {"weight_g_idx\" is missing"}},
      {kInt8,
       {{"weight", D::kI8}, {"weight_scale", D::kF32}, {"weight_zero_point", D::kI8}},
       {"weight_zero_point\" is I8", "no such tensor"}},
      {kNvfp4Packed,
       {{"weight_packed", D::kU8}, {"weight_scale", D::kF8E4M3}},
       {"weight_global_scale\" is missing", "F32"}},
      {kNvfp4,
       {{"weight", D::kU8}, {"weight_scale", D::kBF16}, {"weight_scale_2", D::kF32}},
       {"weight_scale\" is BF16", "F8_E4M3"}},
      {kNvfp4, {{"weight", D::kU8}, {"weight_scale", D::kF8E4M3}}, {"weight_scale_2\" is missing"}},
      {kNvfp4,
       {{"weight", D::kU8}, {"weight_scale", D::kF8E4M3}, {"weight_scale_2", D::kF32}, {"pre_quant_scale", D::kBF16}},
       {"pre_quant_scale\" is BF16"}},
      {kMxfp4Packed,
       {{"weight_packed", D::kU8}, {"weight_scale", D::kF8E4M3}},
       {"weight_scale\" is F8_E4M3", "U8, F8_E8M0"}},
      {kMxfp4Packed, {{"weight_packed", D::kU8}}, {"weight_scale\" is missing", "U8, F8_E8M0"}},
      {kMxfp4, {{"weight", D::kF8E4M3}, {"weight_scale", D::kU8}}, {"weight\" is F8_E4M3", "MXFP4, groups of 32"}},
      {nullptr, {{"weight", D::kF8E4M3}, {"weight_scale", D::kF32}}, {"weight\" is F8_E4M3", "no quantised weights"}},
      {nullptr, {{"weight", D::kBF16}, {"weight_scale", D::kF32}}, {"weight_scale\" is F32"}},
  };
  for (const Contradiction& c : cases) {
    SCOPED_TRACE(c.settings == nullptr ? "no settings" : c.settings);
    std::vector<std::string> parts = c.parts;
    parts.emplace_back("m/config.json: the checkpoint's tensor \"model.layers.0.self_attn.q_proj.");
    expect_error(formats_of(c.settings).of(kLinear, stored_as(c.tensors)), StatusCode::kInvalidArgument, parts);
  }
}

}  // namespace
}  // namespace tessera
