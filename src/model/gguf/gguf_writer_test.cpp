// Catches: a written file that this engine's reader or another GGUF reader does not read back unchanged.
#include "tessera/model/gguf/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/gguf/gguf_file.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Fills tensor `index` with bytes that depend on the index and on their offset.
TensorContent counted() {
  return {.fill = [](std::size_t index, std::int64_t offset, std::span<std::byte> to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::byte>(index * 50 + static_cast<std::size_t>(offset) + i);
    return ok_status();
  }};
}

GgufMetadata some_metadata() {
  GgufMetadata metadata;
  metadata.set_string("general.architecture", "llama");
  metadata.set_uint32("a.count", 4096);
  metadata.set_int32("a.negative", -1);
  metadata.set_float32("a.number", 0.5);
  metadata.set_bool("a.flag", true);
  metadata.set_strings("a.texts", std::vector<std::string>{"one", "", "zwölf"});
  metadata.set_int32s("a.kinds", std::vector<std::int32_t>{1, -3});
  metadata.set_float32s("a.scores", std::vector<float>{-1.5F});
  return metadata;
}

TEST(GgufWriter, MetadataAreReadBack) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/m.gguf";
  GgufMetadata metadata = some_metadata();
  metadata.set_uint32("a.count", 17);
  ASSERT_TRUE(write_gguf(path, metadata, {}, counted()).ok());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->keys().size(), 8u);
  EXPECT_EQ(file->find("general.architecture")->string(), "llama");
  EXPECT_EQ(file->find("a.count")->integer(), 17) << "a key that is set again";
  EXPECT_EQ(file->find("a.count")->type(), GgufType::kUint32);
  EXPECT_EQ(file->find("a.negative")->integer(), -1);
  EXPECT_EQ(file->find("a.number")->number(), 0.5);
  EXPECT_EQ(file->find("a.flag")->boolean(), true);
  EXPECT_THAT(*file->find("a.texts")->strings(), ElementsAre("one", "", "zwölf"));
  EXPECT_THAT(*file->find("a.kinds")->integers(), ElementsAre(1, -3));
  EXPECT_THAT(*file->find("a.scores")->numbers(), ElementsAre(-1.5));
}

TEST(GgufWriter, ValuesOfAnotherFileAreCopied) {
  const test::ScratchDir dir;
  ASSERT_TRUE(write_gguf(dir.path() + "/a.gguf", some_metadata(), {}, counted()).ok());
  const GgufFile first = *GgufFile::open(dir.path() + "/a.gguf");
  GgufMetadata copy;
  for (const std::string_view key : first.keys()) copy.set(key, *first.find(key));
  EXPECT_EQ(copy.bytes(), some_metadata().bytes());
}

TEST(GgufWriter, TensorsAreReadBack) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/m.gguf";
  const std::vector<GgufLayout> layouts = {
      {"a", BlockType::kF32, {3}}, {"b", BlockType::kQ8_0, {5, 64}}, {"c", BlockType::kQ6_K, {2, 3, 256}}};
  ASSERT_TRUE(write_gguf(path, some_metadata(), layouts, counted()).ok());
  EXPECT_EQ(std::filesystem::file_size(path) % 32, 0u);
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ(file->tensors().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const GgufTensor& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.name, layouts[i].name);
    EXPECT_EQ(tensor.type, layouts[i].type);
    EXPECT_EQ(tensor.shape, layouts[i].shape);
    ASSERT_EQ(std::ssize(tensor.data), layouts[i].bytes());
    for (std::size_t k = 0; k < tensor.data.size(); ++k)
      ASSERT_EQ(tensor.data[k], static_cast<std::byte>(i * 50 + k)) << tensor.name << " byte " << k;
  }
}

TEST(GgufWriter, RefusesWhatFilesCannotHold) {
  const test::ScratchDir dir;
  const auto refused = [&](std::vector<GgufLayout> layouts, const char* words) {
    const Status status = write_gguf(dir.path() + "/m.gguf", {}, layouts, counted());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  refused({{"a", BlockType::kF32, {1}}, {"a", BlockType::kF32, {1}}}, "\"a\" is given twice");
  refused({{std::string(64, 'x'), BlockType::kF32, {1}}}, "names of 1 to 63 bytes");
  refused({{"a", BlockType::kQ4_K, {2, 320}}}, "accepted for Q4_K: 1 to 4 dimensions, rows of a multiple of 256");
  refused({{"a", BlockType::kF32, {1, 1, 1, 1, 1}}}, "1 to 4 dimensions");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(GgufWriter, FailedContentLeavesNothing) {
  const test::ScratchDir dir;
  const std::vector<GgufLayout> layouts = {{"a", BlockType::kF32, {3}}};
  TensorContent content = counted();
  content.before_commit = [] { return data_loss("the source is gone"); };
  EXPECT_EQ(write_gguf(dir.path() + "/m.gguf", {}, layouts, content).message(), "the source is gone");
  content.fill = [](std::size_t, std::int64_t, std::span<std::byte>) { return data_loss("no numbers"); };
  EXPECT_EQ(write_gguf(dir.path() + "/m.gguf", {}, layouts, content).message(), "no numbers");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace tessera
