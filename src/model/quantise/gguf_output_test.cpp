// Catches: a requantised file that loses metadata or tensors; bytes that change although the type does not; numbers
// outside of a type's range that are accepted.
#include "tessera/model/quantise/gguf_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/gguf/gguf_writer.h"
#include "tessera/model/gguf/made_tensors.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

GgufContent content_with(std::vector<float> numbers) {
  GgufContent content;
  content.architecture = "llama";
  content.source = "m.gguf";
  content.metadata.set_string("general.architecture", "llama");
  content.tensors.push_back({.name = "blk.0.ffn_up.weight",
                             .shape = {std::ssize(numbers) / 256, 256},
                             .numbers = make_numbers(std::move(numbers))});
  return content;
}

Status write_numbers(const std::string& path, std::vector<float> numbers, const char* type) {
  return (*make_gguf_output(content_with(std::move(numbers)), *find_file_type(type)))->write(path, {});
}

TEST(GgufOutput, FileSaysItsType) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/m.gguf";
  ASSERT_TRUE(write_numbers(path, std::vector<float>(512, 1.0F), "Q4_K_M").ok());
  const GgufFile file = *GgufFile::open(path);
  EXPECT_EQ(file.find("general.file_type")->integer(), 15);
  EXPECT_EQ(file.find("general.quantization_version")->integer(), 2);
  EXPECT_EQ(file.tensors().at(0).type, BlockType::kQ4_K);
}

TEST(GgufOutput, NumbersThatATypeCannotHoldAreNamed) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/m.gguf";
  std::vector<float> numbers(512, 1.0F);
  numbers[300] = 70000.0F;
  EXPECT_TRUE(write_numbers(path, numbers, "BF16").ok());
  std::filesystem::remove(path);
  const Status large = write_numbers(path, numbers, "Q8_0");
  EXPECT_EQ(large.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(large.message(),
              HasSubstr("m.gguf: tensor blk.0.ffn_up.weight: element 300 is 70000; accepted for Q8_0"));
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    numbers[300] = wrong;
    EXPECT_THAT(write_numbers(path, numbers, "BF16").message(), HasSubstr("element 300 is"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(GgufOutput, RequantisedFileKeepsMetadataAndUnchangedBytes) {
  const std::string source = std::string(TESSERA_SOURCE_DIR) + "/tests/data/gguf/llama-split";
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(source))
    if (entry.path().extension() == ".gguf") first = std::max(first, entry.path().string());
  ASSERT_FALSE(first.empty());
  const GgufModel model = *GgufModel::open(first);
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/m.gguf";
  auto content = content_of_gguf(model);
  ASSERT_TRUE(content.ok()) << content.status().to_string();
  content->model = std::make_shared<const GgufModel>(model);
  ASSERT_TRUE((*make_gguf_output(*content, *find_file_type("Q8_0")))->write(path, {}).ok());

  const GgufModel written = *GgufModel::open(path);
  for (const std::string_view key : model.files().front().keys()) {
    if (key.starts_with("split.") || key == "general.file_type") continue;
    const GgufValue* value = written.find(key);
    ASSERT_NE(value, nullptr) << key;
    EXPECT_EQ(value->type(), model.find(key)->type()) << key;
    EXPECT_TRUE(std::ranges::equal(value->bytes(), model.find(key)->bytes())) << key;
  }
  EXPECT_EQ(written.find("split.count"), nullptr);
  std::size_t tensors = 0;
  for (const GgufFile& file : model.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      ++tensors;
      const GgufTensor* got = written.find_tensor(tensor.name);
      ASSERT_NE(got, nullptr) << tensor.name;
      EXPECT_EQ(got->shape, tensor.shape);
      EXPECT_EQ(got->type, tensor.shape.size() > 1 ? BlockType::kQ8_0 : tensor.type) << tensor.name;
      EXPECT_TRUE(got->type != tensor.type || std::ranges::equal(got->data, tensor.data)) << tensor.name;
    }
  }
  EXPECT_EQ(written.files().front().tensors().size(), tensors);
}

}  // namespace
}  // namespace tessera
