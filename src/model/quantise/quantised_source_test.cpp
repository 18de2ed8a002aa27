// Catches: numbers of a quantised linear that differ from the format's definition; reads past the end of a tensor
// because another tensor has a wrong size.
#include "tessera/model/quantise/quantised_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tensor of the file that a test writes.
struct GivenTensor {
  const char* name;
  StoredDtype dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

std::string float_bytes(std::initializer_list<float> numbers) {
  std::string bytes(numbers.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), std::data(numbers), bytes.size());
  return bytes;
}

Checkpoint checkpoint_of(const std::vector<GivenTensor>& given, const test::ScratchDir& dir) {
  std::vector<StoredTensor> tensors;
  for (const GivenTensor& tensor : given)
    tensors.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .data = std::as_bytes(std::span(tensor.bytes))});
  EXPECT_TRUE(write_safetensors(dir.path() + "/model.safetensors", tensors).ok());
  return *Checkpoint::open(dir.path());
}

WeightFormats read_settings(const char* settings) {
  const Json json = *Json::parse(settings, "settings");
  return *WeightFormats::read(json, nullptr, "config.json");
}

const char* const kFp8 = R"({"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
    "weight_block_size": [1, 2]}})";
const char* const kNvfp4 = R"({"quantization_config": {"quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"], "weights":
    {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": true}}}}})";

std::vector<GivenTensor> fp8_linear() {
  // Both rows are 1, 2, -1.5 and 0 in E4M3.
  return {{"m.weight", StoredDtype::kF8E4M3, {2, 4}, std::string("\x38\x40\xbc\x00\x38\x40\xbc\x00", 8)},
          {"m.weight_scale_inv", StoredDtype::kF32, {2, 2}, float_bytes({1, 10, 100, 1000})}};
}

TEST(QuantisedSource, NumbersAreValuesTimesScales) {
  const test::ScratchDir dir;
  const Checkpoint checkpoint = checkpoint_of(fp8_linear(), dir);
  const WeightFormats settings = read_settings(kFp8);
  const QuantisedSource source(checkpoint, settings);
  const auto linear = source.find(*checkpoint.find("m.weight"));
  ASSERT_TRUE(linear.ok()) << linear.status().to_string();
  ASSERT_TRUE(linear->has_value());
  EXPECT_EQ((*linear)->numbers.name, "m.weight");
  EXPECT_EQ((*linear)->bytes, 8 + 16);
  std::vector<float> numbers(5);
  (*linear)->numbers.made->read(1, 5, reinterpret_cast<std::byte*>(numbers.data()));
  EXPECT_THAT(numbers, ElementsAre(2, -15, 0, 100, 200));
  const auto scale = source.find(*checkpoint.find("m.weight_scale_inv"));
  ASSERT_TRUE(scale.ok() && scale->has_value());
  EXPECT_EQ((*scale)->numbers.made, nullptr);
}

TEST(QuantisedSource, NumbersOfFourBitsHaveTwoScales) {
  const test::ScratchDir dir;
  const Checkpoint checkpoint =
      checkpoint_of({{"m.weight_packed", StoredDtype::kU8, {1, 8}, std::string("\x21\x97\x00\x00\x00\x00\x00\xf0", 8)},
                     {"m.weight_scale", StoredDtype::kF8E4M3, {1, 1}, "\x40"},  // 2 in E4M3
                     {"m.weight_global_scale", StoredDtype::kF32, {1}, float_bytes({0.25F})}},
                    dir);
  const WeightFormats settings = read_settings(kNvfp4);
  const auto linear = QuantisedSource(checkpoint, settings).find(*checkpoint.find("m.weight_packed"));
  ASSERT_TRUE(linear.ok()) << linear.status().to_string();
  std::vector<float> numbers(16);
  (*linear)->numbers.made->read(0, 16, reinterpret_cast<std::byte*>(numbers.data()));
  EXPECT_THAT(numbers, ElementsAre(4, 8, 48, -4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -48));
}

TEST(QuantisedSource, TensorsThatDoNotFitAreErrors) {
  const auto refused = [](const std::vector<GivenTensor>& tensors, const char* settings, const char* words) {
    const test::ScratchDir dir;
    const Checkpoint checkpoint = checkpoint_of(tensors, dir);
    const WeightFormats format = read_settings(settings);
    const auto linear = QuantisedSource(checkpoint, format).find(*checkpoint.find(tensors.front().name));
    ASSERT_FALSE(linear.ok()) << words;
    EXPECT_THAT(linear.status().message(), HasSubstr(words));
  };
  std::vector<GivenTensor> fewer = fp8_linear();
  fewer[1].shape = {3};
  fewer[1].bytes.resize(12);
  refused(fewer, kFp8, "m.weight_scale_inv is [3]; accepted: 4 elements");
  std::vector<GivenTensor> packed = {{"m.weight_packed", StoredDtype::kU8, {1, 8}, std::string(8, '\0')},
                                     {"m.weight_scale", StoredDtype::kF8E4M3, {1, 1}, "\x40"},
                                     {"m.weight_global_scale", StoredDtype::kF32, {1}, float_bytes({0})}};
  refused(packed, kNvfp4, "m.weight_global_scale is 0 of F32; accepted: F32 above 0");
  packed.pop_back();
  refused(packed, kNvfp4, "m.weight_global_scale");
}

}  // namespace
}  // namespace tessera
