// Catches: a tensor of a GGUF file that is left out without an error; NVFP4 numbers without the factor that the file
// has in a tensor of its own.
#include "tessera/model/gguf/gguf_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/gguf/gguf_test_util.h"
#include "tessera/ops/quantised/blocks/dequantise.h"

namespace tessera {
namespace {

using test::GgufBytes;
using ::testing::HasSubstr;

constexpr std::int64_t kCols = 64;  // one block of NVFP4
constexpr std::size_t kBlockBytes = 36;

struct Entry {
  std::string name;
  std::vector<std::uint64_t> sizes;
  BlockType type;
  std::string bytes;
};

std::string floats(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// Returns blocks whose scales and values all differ.
std::string blocks(int rows) {
  std::string bytes(static_cast<std::size_t>(rows) * kBlockBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % kBlockBytes < 4 ? 40 + i : 37 * i);
  return bytes;
}

std::vector<float> numbers_of(const std::string& blocks) {
  std::vector<float> numbers(blocks.size() / kBlockBytes * kCols);
  dequantise(BlockType::kNVFP4, reinterpret_cast<const std::uint8_t*>(blocks.data()),
             static_cast<std::int64_t>(blocks.size() / kBlockBytes), numbers.data());
  return numbers;
}

std::string file_of(const std::string& architecture, const std::vector<Entry>& entries) {
  GgufBytes bytes;
  bytes.start(entries.size(), 3).pair("general.architecture", architecture);
  bytes.pair(architecture + ".attention.head_count", 2).pair(architecture + ".block_count", 1);
  std::uint64_t offset = 0;
  for (const Entry& entry : entries) {
    bytes.tensor(entry.name, entry.sizes, entry.type, offset);
    offset += (entry.bytes.size() + 31) / 32 * 32;
  }
  for (const Entry& entry : entries) bytes.pad().raw(entry.bytes);
  return bytes.pad().string();
}

struct Read {
  std::string file;
  Result<TensorFile> tensors;

  const StoredTensor* find(const std::string& name) const {
    const auto found = std::ranges::find(tensors->tensors, name, &StoredTensor::name);
    return found != tensors->tensors.end() ? &*found : nullptr;
  }
};

Read read(const std::string& architecture, const std::vector<Entry>& entries) {
  std::string file = file_of(architecture, entries);
  const auto parsed = GgufFile::parse(std::as_bytes(std::span(file)), "m.gguf");
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  Result<TensorFile> tensors = read_gguf_tensors(GgufModel::of(*parsed));
  return {std::move(file), std::move(tensors)};
}

template <class T>
std::vector<T> elements(const StoredTensor* tensor) {
  if (tensor == nullptr || tensor->made == nullptr) return {};
  std::vector<T> result(static_cast<std::size_t>(tensor->num_elements()));
  tensor->made->read(0, tensor->num_elements(), reinterpret_cast<std::byte*>(result.data()));
  return result;
}

// Computes the numbers of a linear that is stored as ModelOpt stores NVFP4.
std::vector<float> numbers_of(const Read& read, const std::string& name) {
  constexpr std::array<float, 16> kE2M1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  const std::vector<std::uint8_t> values = elements<std::uint8_t>(read.find(name));
  const std::vector<std::uint8_t> scales = elements<std::uint8_t>(read.find(name + "_scale"));
  const std::vector<float> factor = elements<float>(read.find(name + "_scale_2"));
  if (scales.size() * 8 != values.size() || factor.size() != 1) return {};
  std::vector<float> numbers;
  for (std::size_t i = 0; i < 2 * values.size(); ++i) {
    const int code = values[i / 2] >> (i % 2 * 4) & 15;
    const int scale = scales[i / 16];
    const float mantissa = scale < 8 ? static_cast<float>(scale) / 8 : 1 + static_cast<float>(scale % 8) / 8;
    numbers.push_back(kE2M1[static_cast<std::size_t>(code)] * std::ldexp(mantissa, std::max(scale / 8, 1) - 7) *
                      factor[0]);
  }
  return numbers;
}

std::vector<float> times(std::vector<float> numbers, float factor) {
  for (float& number : numbers) number *= factor;
  return numbers;
}

TEST(GgufTensors, MoreExpertsThanTheKernelsTakeAreAnError) {
  const Read file =
      read("qwen3moe", {{"blk.0.ffn_up_exps.weight", {1, 1, 70000}, BlockType::kF32, std::string(280000, '\0')}});
  EXPECT_THAT(file.tensors.status().message(), HasSubstr("shape is [70000, 1, 1]; accepted: at most 1024 experts"));
}

TEST(GgufTensors, Nvfp4LinearsKeepTheirBlocksAndTheirFactor) {
  const std::string stored = blocks(3);
  const Read file = read("qwen3", {{"blk.0.ffn_up.weight", {64, 3}, BlockType::kNVFP4, stored},
                                   {"blk.0.ffn_up.scale", {1}, BlockType::kF32, floats({0.25F})},
                                   {"blk.0.ffn_up.input_scale", {1}, BlockType::kF32, floats({7})},
                                   {"blk.0.ffn_down.weight", {64, 3}, BlockType::kNVFP4, stored}});
  ASSERT_TRUE(file.tensors.ok()) << file.tensors.status().message();
  EXPECT_EQ(numbers_of(file, "model.layers.0.mlp.up_proj.weight"), times(numbers_of(stored), 0.25F));
  EXPECT_EQ(numbers_of(file, "model.layers.0.mlp.down_proj.weight"), numbers_of(stored));
  EXPECT_EQ(file.tensors->tensors.size(), 6u);
}

TEST(GgufTensors, Nvfp4ExpertsHaveAFactorEach) {
  const std::string stored = blocks(4);
  const Read file = read("qwen3moe", {{"blk.0.ffn_up_exps.weight", {64, 2, 2}, BlockType::kNVFP4, stored},
                                      {"blk.0.ffn_up_exps.scale", {2}, BlockType::kF32, floats({0.5F, 3})}});
  ASSERT_TRUE(file.tensors.ok()) << file.tensors.status().message();
  const std::vector<float> all = numbers_of(stored);
  EXPECT_EQ(numbers_of(file, "model.layers.0.mlp.experts.0.up_proj.weight"),
            times({all.begin(), all.begin() + 2 * kCols}, 0.5F));
  EXPECT_EQ(numbers_of(file, "model.layers.0.mlp.experts.1.up_proj.weight"),
            times({all.begin() + 2 * kCols, all.end()}, 3));
}

// Checkpoints have neither scales of 0 nor NaN. The first group's scale is 0, the second's 0x7f.
TEST(GgufTensors, Nvfp4GroupsWithoutAScaleAreZeros) {
  std::string stored = blocks(1);
  stored[0] = 0;
  stored[1] = 0x7f;
  const Read file = read("qwen3", {{"blk.0.ffn_up.weight", {64, 1}, BlockType::kNVFP4, stored}});
  ASSERT_TRUE(file.tensors.ok()) << file.tensors.status().message();
  EXPECT_EQ(numbers_of(file, "model.layers.0.mlp.up_proj.weight"), numbers_of(stored));
  const StoredTensor* scales = file.find("model.layers.0.mlp.up_proj.weight_scale");
  for (const std::uint8_t scale : elements<std::uint8_t>(scales)) EXPECT_TRUE(scale > 0 && scale < 0x7f);
}

// The rows of llama's queries are permuted within each of the two heads: 0, 2, 1, 3 of the file.
TEST(GgufTensors, Nvfp4RowsArePutBackInOrder) {
  const std::string stored = blocks(8);
  const Read file = read("llama", {{"blk.0.attn_q.weight", {64, 8}, BlockType::kNVFP4, stored},
                                   {"blk.0.attn_q.scale", {1}, BlockType::kF32, floats({2})}});
  ASSERT_TRUE(file.tensors.ok()) << file.tensors.status().message();
  const std::vector<float> all = times(numbers_of(stored), 2);
  const std::vector<float> numbers = numbers_of(file, "model.layers.0.self_attn.q_proj.weight");
  ASSERT_EQ(numbers.size(), all.size());
  const std::array<std::ptrdiff_t, 4> kStored = {0, 2, 1, 3};
  for (std::ptrdiff_t row = 0; row < 4; ++row)
    EXPECT_TRUE(std::equal(all.begin() + kStored[row] * kCols, all.begin() + (kStored[row] + 1) * kCols,
                           numbers.begin() + row * kCols))
        << row;
}

// Tensors that stay one tensor are converted to numbers: the embedding, and all tensors of other types.
TEST(GgufTensors, FactorsOfOtherTensorsMultiplyTheirNumbers) {
  const std::string stored = blocks(2);
  const Read file = read("qwen3", {{"token_embd.weight", {64, 2}, BlockType::kNVFP4, stored},
                                   {"token_embd.scale", {1}, BlockType::kF32, floats({4})},
                                   {"blk.0.ffn_up.weight", {2, 1}, BlockType::kF32, floats({1, -2})},
                                   {"blk.0.ffn_up.scale", {1}, BlockType::kF32, floats({3})}});
  ASSERT_TRUE(file.tensors.ok()) << file.tensors.status().message();
  EXPECT_EQ(elements<float>(file.find("model.embed_tokens.weight")), times(numbers_of(stored), 4));
  EXPECT_EQ(elements<float>(file.find("model.layers.0.mlp.up_proj.weight")), (std::vector<float>{3, -6}));
}

TEST(GgufTensors, UnknownTensorsAndWrongFactorsAreErrors) {
  const Entry matrix{"blk.0.ffn_up.weight", {64, 1}, BlockType::kNVFP4, blocks(1)};
  const Entry foreign{"blk.0.foo.weight", {2}, BlockType::kF32, floats({1, 2})};
  const Entry alone{"blk.0.ffn_down.scale", {1}, BlockType::kF32, floats({1})};
  const Entry two{"blk.0.ffn_up.scale", {2}, BlockType::kF32, floats({1, 2})};
  const Entry infinite{"blk.0.ffn_up.scale", {1}, BlockType::kF32, floats({std::numeric_limits<float>::infinity()})};
  EXPECT_THAT(read("qwen3", {foreign}).tensors.status().message(),
              HasSubstr("m.gguf: tensor \"blk.0.foo.weight\" is unknown; accepted: the tensors of the architecture"));
  EXPECT_THAT(read("qwen3", {matrix, alone}).tensors.status().message(), HasSubstr("\"blk.0.ffn_down.scale\""));
  EXPECT_THAT(read("qwen3", {matrix, two}).tensors.status().message(),
              HasSubstr("\"blk.0.ffn_up.scale\": shape is [2]; accepted: one number of F32"));
  EXPECT_THAT(read("qwen3", {matrix, infinite}).tensors.status().message(), HasSubstr("accepted: finite numbers"));
}

TEST(GgufTensors, ResultsNameTheTensorsOfTheFile) {
  const Read file = read("qwen3", {{"blk.0.ffn_up.weight", {2, 1}, BlockType::kF32, floats({1, 2})}});
  ASSERT_TRUE(file.tensors.ok()) << file.tensors.status().message();
  EXPECT_EQ(file.tensors->tensors[0].source, "blk.0.ffn_up.weight");
}

TEST(GgufTensors, MissingTensorsHaveTheirNamesOfTheFile) {
  const auto own_name = [](const std::string& architecture, std::string_view name) {
    return read(architecture, {}).tensors->own_name(name);
  };
  EXPECT_EQ(own_name("qwen3", "model.layers.2.input_layernorm.weight"), "blk.2.attn_norm.weight");
  EXPECT_EQ(own_name("qwen3", "model.norm.weight"), "output_norm.weight");
  EXPECT_EQ(own_name("qwen3", "lm_head.weight"), "output.weight");
  EXPECT_EQ(own_name("qwen3moe", "model.layers.0.mlp.experts.17.up_proj.weight"), "blk.0.ffn_up_exps.weight");
  EXPECT_EQ(own_name("gemma3", "model.layers.1.post_feedforward_layernorm.weight"), "blk.1.post_ffw_norm.weight");
  EXPECT_EQ(own_name("qwen35", "mtp.layers.0.input_layernorm.weight"), "blk.1.attn_norm.weight");
  EXPECT_EQ(own_name("qwen35", "mtp.fc.weight"), "blk.1.nextn.eh_proj.weight");
  EXPECT_EQ(own_name("qwen3", "model.foo"), "model.foo");
}

}  // namespace
}  // namespace tessera
