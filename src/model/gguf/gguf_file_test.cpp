// Catches: reads outside of a GGUF file's bytes; wrong files that are accepted, or refused without a reason.
#include "tessera/model/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/gguf/gguf_test_util.h"

namespace tessera {
namespace {

using test::GgufBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a valid file with values of most types and two tensors.
GgufBytes good_file() {
  GgufBytes file;
  file.start(2, 6)
      .pair("general.architecture", "llama")
      .pair("llama.block_count", 2)
      .key("small", GgufType::kInt8)
      .put<std::int8_t>(-3)
      .key("eps", GgufType::kFloat32)
      .put(0.5F)
      .key("flag", GgufType::kBool)
      .put<std::uint8_t>(1)
      .list("words", GgufType::kString, 2)
      .text("a")
      .text("")
      .tensor("x", {3, 2}, BlockType::kF32, 0)
      .tensor("y", {32, 2}, BlockType::kQ8_0, 32)
      .pad()
      .zeros(24)
      .pad()
      .zeros(68);
  return file;
}

Status status_of(const GgufBytes& file) { return GgufFile::parse(file.bytes(), "m.gguf").status(); }

// Expects an error with this code whose message names the file and contains the text.
void expect_error(const GgufBytes& file, StatusCode code, const std::string& text) {
  const Status status = status_of(file);
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("m.gguf"));
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(GgufFile, HasMetadataAndTensors) {
  const GgufBytes bytes = good_file();
  const Result<GgufFile> file = GgufFile::parse(bytes.bytes(), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("general.architecture")->string(), "llama");
  EXPECT_EQ(file->find("llama.block_count")->integer(), 2);
  EXPECT_EQ(file->find("small")->integer(), -3);
  EXPECT_EQ(file->find("eps")->number(), 0.5);
  EXPECT_EQ(file->find("flag")->boolean(), true);
  EXPECT_THAT(*file->find("words")->strings(), ElementsAre("a", ""));
  EXPECT_EQ(file->find("words")->string(), std::nullopt);
  EXPECT_EQ(file->find("eps")->integer(), std::nullopt);
  EXPECT_EQ(file->find("none"), nullptr);
  EXPECT_EQ(file->find_tensor("y"), &file->tensors()[1]);
  EXPECT_EQ(file->find_tensor("none"), nullptr);
  ASSERT_EQ(file->tensors().size(), 2U);
  EXPECT_THAT(file->tensors()[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(file->tensors()[1].type, BlockType::kQ8_0);
  EXPECT_EQ(file->tensors()[1].data.size(), 68U);
  EXPECT_EQ(file->tensors()[1].data.data(), bytes.bytes().data() + bytes.bytes().size() - 68);
}

TEST(GgufFile, EveryTruncationIsAnError) {
  const std::string whole = good_file().string();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto file = GgufFile::parse(std::as_bytes(std::span(whole).first(size)), "m.gguf");
    ASSERT_EQ(file.status().code(), StatusCode::kDataLoss) << size;
  }
}

TEST(GgufFile, OtherFilesAreNamed) {
  expect_error(GgufBytes().raw("GGML").zeros(100), StatusCode::kDataLoss, "47 47 4d 4c; accepted: \"GGUF\"");
  expect_error(GgufBytes().raw("version https://git-lfs.github.com/spec/v1\n"), StatusCode::kDataLoss, "Git LFS");
  expect_error(GgufBytes().start(0, 0, 1), StatusCode::kUnimplemented, "the version is 1; accepted: 2 and 3");
  expect_error(GgufBytes().start(0, 0, 4), StatusCode::kUnimplemented, "the version is 4");
  expect_error(GgufBytes().start(0, 0, 0x03000000), StatusCode::kUnimplemented, "big-endian");
}

TEST(GgufFile, LyingCountsAndLengthsAreErrors) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  expect_error(GgufBytes().start(0, kMost), StatusCode::kDataLoss,
               "the number of metadata pairs is 18446744073709551615");
  expect_error(GgufBytes().start(kMost, 0), StatusCode::kDataLoss, "the number of tensors is 18446744073709551615");
  expect_error(GgufBytes().start(0, 1).put(std::uint64_t{1} << 63).zeros(64), StatusCode::kDataLoss,
               "the length of metadata key 0 is 9223372036854775808");
  expect_error(GgufBytes().start(0, 1).key("k", GgufType::kString).put(std::uint64_t{1} << 63), StatusCode::kDataLoss,
               "the length of the value of \"k\" is 9223372036854775808");
  expect_error(GgufBytes().start(0, 1).list("k", GgufType::kUint64, std::uint64_t{1} << 61).zeros(64),
               StatusCode::kDataLoss, "the length of the value of \"k\" is 2305843009213693952; accepted: at most 8");
  expect_error(GgufBytes().start(0, 1).list("k", GgufType::kString, 1).put<std::uint64_t>(20).zeros(8),
               StatusCode::kDataLoss, "the length of the value of \"k\" is 20; accepted: at most 8");
}

// A file with holes can be so large that a wrong count fits into it.
TEST(GgufFile, CountsThatOnlyHolesCanHoldAreErrors) {
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 36;
  const test::ScratchDir dir;
  const auto expect_refusal = [&](const GgufBytes& start, const std::string& text) {
    const std::string path = dir.write("m.gguf", start.string());
    std::filesystem::resize_file(path, kBytes);
    const Status status = GgufFile::open(path).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  constexpr std::uint64_t kMany = std::uint64_t{1} << 31;
  expect_refusal(GgufBytes().start(0, kMany), "the number of metadata pairs is 2147483648; accepted: at most 1048576");
  expect_refusal(GgufBytes().start(kMany, 0), "the number of tensors is 2147483648; accepted: at most 1048576");
  expect_refusal(GgufBytes().start(0, 1).list("k", GgufType::kUint8, kMany),
                 "the length of the value of \"k\" is 2147483648; accepted: at most 16777216");
  expect_refusal(GgufBytes().start(0, 1).key("k", GgufType::kString).put(kMany),
                 "the length of the value of \"k\" is 2147483648; accepted: at most 67108864");
}

TEST(GgufFile, WrongMetadataAreErrors) {
  expect_error(GgufBytes().start(0, 2).pair("k", 1).pair("k", 2), StatusCode::kDataLoss,
               "metadata key \"k\" is there twice");
  expect_error(GgufBytes().start(0, 1).text("k").put<std::uint32_t>(13).zeros(8), StatusCode::kDataLoss,
               "the type of the value of \"k\" is 13; accepted: 0 to 12");
  expect_error(GgufBytes().start(0, 1).list("k", GgufType::kArray, 1).zeros(64), StatusCode::kUnimplemented,
               "an array of arrays");
  expect_error(GgufBytes().start(0, 1).key("k", GgufType::kBool).put<std::uint8_t>(2), StatusCode::kDataLoss,
               "the value of \"k\" is 2; accepted: 0 or 1");
  expect_error(GgufBytes().start(0, 1).pair("k", "\xff"), StatusCode::kDataLoss, "no UTF-8");
  for (const std::uint32_t alignment : {0U, 3U, 1U << 30})
    expect_error(GgufBytes().start(0, 1).pair("general.alignment", alignment), StatusCode::kDataLoss,
                 "a power of two up to 1048576");
}

TEST(GgufFile, WrongTensorsAreErrors) {
  const auto with = [](const std::vector<std::uint64_t>& sizes, BlockType type, std::uint64_t offset) {
    return GgufBytes().start(1, 0).tensor("x", sizes, type, offset).pad().zeros(64);
  };
  EXPECT_TRUE(status_of(with({4, 4}, BlockType::kF32, 0)).ok());
  expect_error(with({}, BlockType::kF32, 0), StatusCode::kDataLoss, "the number of dimensions is 0; accepted: 1 to 4");
  expect_error(with({1, 1, 1, 1, 1}, BlockType::kF32, 0), StatusCode::kDataLoss, "the number of dimensions is 5");
  expect_error(with({0}, BlockType::kF32, 0), StatusCode::kDataLoss, "dimension 0 is 0");
  expect_error(with({std::uint64_t{1} << 63}, BlockType::kF32, 0), StatusCode::kDataLoss, "2^59");
  expect_error(with({std::uint64_t{1} << 40, std::uint64_t{1} << 40}, BlockType::kF32, 0), StatusCode::kDataLoss,
               "dimension 1 is 1099511627776");
  expect_error(with({4, 5}, BlockType::kF32, 0), StatusCode::kDataLoss, "80 bytes from 0 on");
  expect_error(with({4}, BlockType::kF32, 64), StatusCode::kDataLoss, "truncated");
  expect_error(with({4}, BlockType::kF32, ~std::uint64_t{31}), StatusCode::kDataLoss, "truncated");
  expect_error(with({4}, BlockType::kF32, 4), StatusCode::kDataLoss, "a multiple of the alignment 32");
  expect_error(with({33}, BlockType::kQ8_0, 0), StatusCode::kDataLoss, "a multiple of 32 for type Q8_0");
  expect_error(with({128}, BlockType::kQ4_K, 0), StatusCode::kDataLoss, "a multiple of 256 for type Q4_K");
  expect_error(with({32}, static_cast<BlockType>(4), 0), StatusCode::kUnimplemented,
               "the type is 4; accepted: 0 (F32)");
}

TEST(GgufFile, TensorsThatShareBytesOrNamesAreErrors) {
  const auto two = [](const char* second, std::uint64_t offset) {
    return GgufBytes()
        .start(2, 0)
        .tensor("x", {16}, BlockType::kF32, 0)
        .tensor(second, {4}, BlockType::kF32, offset)
        .pad()
        .zeros(128);
  };
  EXPECT_TRUE(status_of(two("y", 64)).ok());
  expect_error(two("y", 32), StatusCode::kDataLoss, "the offset is 32; accepted: 64 or more, where tensor \"x\" ends");
  expect_error(two("x", 64), StatusCode::kDataLoss, "tensor \"x\" is there twice");
}

// A file that is mapped can shrink, or be overwritten, after its header was checked.
TEST(GgufFile, FileThatShrinksAfterwardsHasShortTexts) {
  constexpr std::uint64_t kTexts = 2000;
  const std::string text(100, 'x');
  GgufBytes bytes;
  bytes.start(0, 1).list("words", GgufType::kString, kTexts);
  for (std::uint64_t i = 0; i < kTexts; ++i) bytes.text(text);
  const test::ScratchDir dir;
  const std::string path = dir.write("m.gguf", bytes.string());
  const Result<GgufFile> file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::filesystem::resize_file(path, bytes.string().size() / 2);
  const auto texts = file->find("words")->strings();
  ASSERT_TRUE(texts);
  EXPECT_EQ(texts->front(), text);
  EXPECT_EQ(texts->back(), "");
  EXPECT_EQ(file->mapping()->check_whole().code(), StatusCode::kDataLoss);
}

TEST(GgufFile, TextsThatGrowAfterwardsAreNotRead) {
  std::string bytes = GgufBytes().start(0, 1).list("words", GgufType::kString, 2).text("a").text("bc").string();
  const Result<GgufFile> file = GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(*file->find("words")->strings(), ElementsAre("a", "bc"));
  const std::size_t second = bytes.size() - 2 - sizeof(std::uint64_t);
  for (const int length : {3, 127}) {
    bytes[second] = static_cast<char>(length);
    EXPECT_EQ(file->find("words")->strings(), std::nullopt) << length;
  }
  bytes[second] = 2;
  bytes[second - 1 - sizeof(std::uint64_t)] = 9;  // the first text now ends 2 bytes before the end
  EXPECT_EQ(file->find("words")->strings(), std::nullopt);
}

TEST(GgufFile, AlignmentOfTheMetadataPlacesTheData) {
  const GgufBytes file = GgufBytes()
                             .start(1, 1)
                             .pair("general.alignment", 128)
                             .tensor("x", {1}, BlockType::kF32, 128)
                             .pad(128)
                             .zeros(128)
                             .put(7.0F);
  const Result<GgufFile> parsed = GgufFile::parse(file.bytes(), "m.gguf");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  float value = 0;
  std::memcpy(&value, parsed->tensors()[0].data.data(), sizeof value);
  EXPECT_EQ(value, 7.0F);
}

}  // namespace
}  // namespace tessera
