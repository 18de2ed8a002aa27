// Catches: quantisation settings that are not found in a config.json; a quantisation method that is taken for another
// one; a crash on untrusted settings.
#include "tessera/model/formats/weight_formats.h"

#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::expect_error;
using test::expect_refused;
using test::format_of;
using test::formats_of;
using test::kLinear;
using test::try_formats;

WeightFormats read(const char* config) {
  const Result<WeightFormats> formats = WeightFormats::read(*Json::parse(config, "config"), nullptr, "m/config.json");
  EXPECT_TRUE(formats.ok()) << formats.status().message();
  return formats.ok() ? *formats : WeightFormats();
}

TEST(WeightFormats, WithoutSettingsAreAllPlain) {
  for (const WeightFormats& formats : {WeightFormats(), read("{}"), read(R"({"quantization_config": null})")}) {
    EXPECT_FALSE(formats.any());
    EXPECT_EQ(formats.method(), "");
    EXPECT_EQ(formats.kv_cache(), std::nullopt);
    EXPECT_TRUE(format_of(formats).is_unquantised());
    EXPECT_EQ(describe(format_of(formats)), "unquantised");
  }
}

TEST(WeightFormats, AreFoundInsideAndOutsideOfANestedConfig) {
  EXPECT_EQ(read(R"({"quantization_config": {"quant_method": "fp8"}, "text_config": {}})").method(), "fp8");
  EXPECT_EQ(read(R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})").method(), "fp8");
  const char* both = R"({"quantization_config": {"quant_method": "fp8"},
      "text_config": {"quantization_config": {"quant_method": "fbgemm_fp8"}}})";
  EXPECT_EQ(read(both).method(), "fbgemm_fp8") << "the text model's own";
  EXPECT_EQ(read(R"({"compression_config": {"config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8,
      "type": "float"}}}}})")
                .method(),
            "compressed-tensors");
}

TEST(WeightFormats, GptqsOwnFileCountsOnlyWithoutOtherSettings) {
  constexpr const char* kBeside = R"({"bits": 4, "group_size": 64, "desc_act": true, "model_name_or_path": null})";
  EXPECT_EQ(format_of(formats_of(nullptr, kBeside)).block_cols, 64);
  EXPECT_EQ(format_of(formats_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 32})", kBeside)).block_cols, 32);
  expect_error(try_formats(nullptr, R"({"bits": 3, "group_size": 64})"), StatusCode::kUnimplemented,
               {"m/quantize_config.json", "\"bits\" is 3"});
}

TEST(WeightFormats, ReadTheKvCacheFormat) {
  const auto kv = [](const std::string& scheme) {
    return formats_of((R"({"quant_method": "fp8", "kv_cache_scheme": )" + scheme + "}").c_str()).kv_cache();
  };
  EXPECT_EQ(kv("null"), std::nullopt);
  EXPECT_EQ(kv("\"static\""), (KvCacheFormat{"fp8", true}));
  EXPECT_EQ(kv("\"dynamic\""), (KvCacheFormat{"fp8", false}));
  EXPECT_EQ(kv("\"NVFP4\""), (KvCacheFormat{"nvfp4", true}));
  EXPECT_EQ(kv(R"({"num_bits": 8, "type": "float", "dynamic": false})"), (KvCacheFormat{"fp8", true}));
  EXPECT_EQ(kv(R"({"num_bits": 8, "type": "int", "dynamic": true})"), (KvCacheFormat{"int8", false}));
}

TEST(WeightFormats, RefuseOtherMethodsByName) {
  for (const char* method : {"bitsandbytes", "hqq", "eetq", "aqlm", "mxfp4", "torchao", ""}) {
    SCOPED_TRACE(method);
    Json settings = Json::object();
    settings.set("quant_method", method);
    expect_error(try_formats(settings.dump().c_str()), StatusCode::kUnimplemented,
                 {"m/config.json: field \"quantization_config.quant_method\" is \"" + std::string(method) + "\"",
                  "fp8, fbgemm_fp8, compressed-tensors, modelopt", "gptq, gptq_marlin, awq, awq_marlin, quark"});
  }
}

TEST(WeightFormats, RefuseWhatIsNoObject) {
  constexpr auto kWrong = StatusCode::kInvalidArgument;
  expect_refused({
      {"{}", StatusCode::kUnimplemented, {"quantization_config.quant_method", "missing"}},
      {"[]", kWrong, {"\"quantization_config\" is []", "an object"}},
      {"3", kWrong, {"\"quantization_config\" is 3"}},
      {R"({"quant_method": 3})", kWrong, {"quant_method", "3", "a string"}},
      {R"({"quant_method": "fp8", "kv_cache_scheme": 8})", StatusCode::kUnimplemented, {"kv_cache_scheme", "8"}},
  });
  expect_error(
      WeightFormats::read(*Json::parse(R"({"text_config": {"quantization_config": 1}})", "config"), nullptr, "c"),
      kWrong, {"\"text_config.quantization_config\" is 1"});
  expect_error(try_formats(nullptr, "{}"), kWrong, {"m/hf_quant_config.json", "\"quantization\" is missing"});
}

// Applies deterministic mutations to settings. Reading must not crash, and accepted settings must give every module a
// format.
TEST(WeightFormats, SurviveChangedSettings) {
  const char* const settings[] = {
      R"({"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "a.*"]})",
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {}, "modules_in_block_to_quantize": [["a"]]})",
      R"({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "FP8"}}, "ignore": ["b*"]})",
      R"({"format": "pack-quantized", "ignore": ["re:.*a(b|c)$"], "config_groups": {"g": {"targets": ["Linear", "re:x+"],
          "input_activations": {"num_bits": 8}, "weights": {"num_bits": 4, "type": "int", "group_size": 32}}}})"};
  std::mt19937 random(20261125);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string text = test::mutated(settings[round % 4], random);
    const Result<Json> json = Json::parse(text, "settings");
    if (!json.ok()) continue;
    Json config = Json::object();
    config.set("quantization_config", *json);
    const Result<WeightFormats> formats = WeightFormats::read(config, nullptr, "m/config.json");
    if (!formats.ok()) {
      EXPECT_NE(formats.status().message().find("m/config.json"), std::string::npos) << text;
      continue;
    }
    ++accepted;
    EXPECT_TRUE(formats->of(kLinear).ok()) << text;
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace tessera
