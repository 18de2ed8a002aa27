// Catches: a published file that is read differently than by transformers; a file that asks for unsupported processing
// but is accepted.
#include "tessera/image/processor_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::HasSubstr;

Result<ImageProcessorConfig> parse(std::string_view text) {
  return parse_processor_config(*Json::parse(text, "test"), "preprocessor_config.json");
}

std::string why_refused(std::string_view text) {
  const Result<ImageProcessorConfig> config = parse(text);
  return config.ok() ? "taken" : std::string(config.status().message());
}

TEST(ProcessorConfig, ReadsOldAndNewNames) {
  const ImageProcessorConfig older = *parse(R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14,
    "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711], "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor"})");
  EXPECT_EQ(older.max_pixels, 12845056);
  EXPECT_EQ(older.side_unit(), 28);
  EXPECT_EQ(older.patch_values(), 1176);
  const ImageProcessorConfig newer = *parse(R"({"size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    "resample": 3, "do_resize": true, "image_processor_type": "Qwen2VLImageProcessorFast"})");
  EXPECT_EQ(newer.min_pixels, 65536);
  EXPECT_EQ(newer.max_pixels, 16777216);
  EXPECT_EQ(newer.std_deviation[2], 0.5);
  // The older names override the newer ones, as in transformers.
  EXPECT_EQ(parse(R"({"size": {"shortest_edge": 100, "longest_edge": 1000}, "max_pixels": 2000})")->max_pixels, 2000);
}

TEST(ProcessorConfig, DefaultsAreThePublishedOnes) {
  EXPECT_EQ(parse("{}")->max_pixels, 1003520);
  for (const char* type : {"qwen2_vl", "qwen2_5_vl"}) {
    EXPECT_EQ(default_processor_config(type).max_pixels, 12845056) << type;
    EXPECT_EQ(default_processor_config(type).patch_size, 14) << type;
  }
  for (const char* type : {"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}) {
    EXPECT_EQ(default_processor_config(type).side_unit(), 32) << type;
    EXPECT_EQ(default_processor_config(type).mean[0], 0.5) << type;
  }
}

TEST(ProcessorConfig, RefusesUnsupportedProcessing) {
  EXPECT_THAT(why_refused(R"({"patch_size": 0})"),
              HasSubstr("preprocessor_config.json: patch_size is 0; accepted: integers from 1 to 256"));
  EXPECT_THAT(why_refused(R"({"merge_size": "2"})"), HasSubstr("merge_size is \"2\""));
  EXPECT_THAT(why_refused(R"({"do_resize": false})"), HasSubstr("do_resize is false; accepted: true"));
  EXPECT_THAT(why_refused(R"({"resample": 2})"), HasSubstr("resample is 2; accepted: 3"));
  EXPECT_THAT(why_refused(R"({"size": {"longest_edge": 1000000000000}})"),
              HasSubstr("size: longest_edge is 1000000000000"));
  EXPECT_THAT(why_refused(R"({"size": 224})"), HasSubstr("size is 224"));
  EXPECT_THAT(why_refused(R"({"min_pixels": 10, "max_pixels": 9})"),
              HasSubstr("is 10, which must not be above the most, 9"));
  EXPECT_THAT(why_refused(R"({"image_std": [1, 0, 1]})"), HasSubstr("image_std is [1, 0, 1]"));
  EXPECT_THAT(why_refused(R"({"image_mean": [1, 2]})"), HasSubstr("three numbers"));
  EXPECT_THAT(why_refused(R"({"rescale_factor": 0})"), HasSubstr("rescale_factor is 0; accepted: numbers above 0"));
  EXPECT_THAT(why_refused(R"({"image_processor_type": "CLIPImageProcessor"})"), HasSubstr("CLIPImageProcessor"));
  EXPECT_THAT(why_refused("[]"), HasSubstr("is not a JSON object"));
  EXPECT_EQ(read_processor_config("/nowhere/preprocessor_config.json").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera
