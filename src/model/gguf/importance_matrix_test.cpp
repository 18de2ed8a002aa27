// Catches: a written importance matrix that other programs cannot read, or that is read back with other values; wrong
// files that are accepted, or refused without a reason.
#include "tessera/model/gguf/importance_matrix.h"

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
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The metadata of an importance matrix's file.
struct Keys {
  std::string type = "imatrix";
  std::uint32_t chunk_count = 3;
};

GgufBytes start_of(std::uint64_t tensors, const Keys& keys = {}) {
  GgufBytes file;
  file.start(tensors, 4)
      .pair("general.type", keys.type)
      .list("imatrix.datasets", GgufType::kString, 1)
      .text("text.txt")
      .pair("imatrix.chunk_count", keys.chunk_count)
      .pair("imatrix.chunk_size", 512);
  return file;
}

// Returns an importance matrix's file with one entry: sums of two columns, and a count.
GgufBytes one_matrix(float first, float second, float count) {
  GgufBytes file = start_of(2);
  file.tensor("a.weight.in_sum2", {2}, BlockType::kF32, 0).tensor("a.weight.counts", {1}, BlockType::kF32, 32).pad();
  return file.put(first).put(second).pad().put(count).pad();
}

Status parse_status(const GgufBytes& file) { return parse_importance(file.bytes(), "i.gguf").status(); }

TEST(ImportanceMatrix, WrittenFileReadsTheSame) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/i.gguf";
  const ImportanceMatrix matrix{
      .source = {},
      .datasets = {"a.txt"},
      .chunk_count = 7,
      .chunk_size = 512,
      .entries = {{.name = "blk.0.ffn_up_exps.weight", .sums = {1, 2, 3, 4, 5, 6}, .counts = {10, 0}},
                  {.name = "blk.0.attn_q.weight", .sums = {0.5F, 0, 2}, .counts = {4}}}};
  ASSERT_TRUE(write_importance(path, matrix).ok());
  const Result<ImportanceMatrix> read = read_importance(path);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->source, path);
  EXPECT_THAT(read->datasets, ElementsAre("a.txt"));
  EXPECT_EQ(read->chunk_count, 7);
  EXPECT_EQ(read->chunk_size, 512);
  ASSERT_EQ(read->entries.size(), 2u);
  EXPECT_EQ(read->entries[0].name, "blk.0.attn_q.weight");
  EXPECT_THAT(read->find("blk.0.attn_q.weight")->sums, ElementsAre(0.5F, 0, 2));
  EXPECT_THAT(read->find("blk.0.ffn_up_exps.weight")->sums, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read->find("blk.0.ffn_up_exps.weight")->counts, ElementsAre(10, 0));
  EXPECT_EQ(read->find("blk.1.attn_q.weight"), nullptr);
}

// llama-imatrix stores sums as [columns, matrices] and counts as [1, matrices], and leaves out the last dimension if it
// is 1.
TEST(ImportanceMatrix, TensorsHaveTheShapesOfLlamaImatrix) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/i.gguf";
  ASSERT_TRUE(write_importance(path, {.source = {},
                                      .datasets = {},
                                      .chunk_count = 1,
                                      .chunk_size = 8,
                                      .entries = {{.name = "x", .sums = {1, 2, 3, 4, 5, 6}, .counts = {1, 2}},
                                                  {.name = "y", .sums = {1, 2, 3}, .counts = {9}}}})
                  .ok());
  const Result<GgufFile> file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->find("general.type")->string(), "imatrix");
  EXPECT_EQ(file->find("imatrix.chunk_size")->type(), GgufType::kUint32);
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->tensors()[0].name, "x.in_sum2");
  EXPECT_THAT(file->tensors()[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(file->tensors()[1].name, "x.counts");
  EXPECT_THAT(file->tensors()[1].shape, ElementsAre(2, 1));
  EXPECT_THAT(file->tensors()[2].shape, ElementsAre(3));
  EXPECT_THAT(file->tensors()[3].shape, ElementsAre(1));
}

TEST(ImportanceMatrix, PlainSumsOfLlamaImatrixAreSkipped) {
  GgufBytes file = start_of(3);
  file.tensor("a.in_sum2", {1}, BlockType::kF32, 0)
      .tensor("a.counts", {1}, BlockType::kF32, 32)
      .tensor("a.in_sum", {1}, BlockType::kF32, 64)
      .pad();
  file.put(2.0F).pad().put(1.0F).pad().put(-3.0F).pad();
  const Result<ImportanceMatrix> read = parse_importance(file.bytes(), "i.gguf");
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->entries.size(), 1u);
  EXPECT_THAT(read->entries[0].sums, ElementsAre(2));
}

TEST(ImportanceMatrix, WrongFilesAreRefusedWithTheReason) {
  const GgufBytes no_keys = GgufBytes(GgufBytes().start(0, 1).pair("general.type", "imatrix"));
  GgufBytes two_counts = start_of(2);
  two_counts.tensor("a.in_sum2", {3}, BlockType::kF32, 0).tensor("a.counts", {2}, BlockType::kF32, 32).pad().zeros(40);
  GgufBytes alone = start_of(1);
  alone.tensor("a.in_sum2", {1}, BlockType::kF32, 0).pad().zeros(4);
  GgufBytes counts_alone = start_of(1);
  counts_alone.tensor("a.counts", {1}, BlockType::kF32, 0).pad().zeros(4);
  GgufBytes other_name = start_of(1);
  other_name.tensor("blk.0.attn_q.weight", {1}, BlockType::kF32, 0).pad().zeros(4);
  GgufBytes other_type = start_of(2);
  other_type.tensor("a.in_sum2", {1}, BlockType::kF16, 0).tensor("a.counts", {1}, BlockType::kF32, 32).pad().zeros(36);
  struct Wrong {
    GgufBytes file;
    const char* said;
  };
  const Wrong wrong[] = {
      {start_of(0, {.type = "model"}), "general.type is \"model\"; accepted: \"imatrix\""},
      {GgufBytes().start(0, 0), "general.type is missing"},
      {no_keys, "imatrix.chunk_count is missing"},
      {start_of(0), "there are no tensors"},
      {two_counts, "tensor \"a.in_sum2\" has 3 elements; accepted: a row for each of the 2 of \"a.counts\""},
      {alone, "tensor \"a.counts\" is missing"},
      {counts_alone, "tensor \"a.in_sum2\" is missing"},
      {other_name, "tensor \"blk.0.attn_q.weight\"; accepted: names that end in .in_sum2"},
      {other_type, "tensor \"a.in_sum2\": type is F16; accepted: F32"},
      {one_matrix(1, -2, 3), "tensor \"a.weight.in_sum2\": element 1 is -2; accepted: finite numbers, at least 0"},
      {one_matrix(std::numeric_limits<float>::quiet_NaN(), 2, 3), "element 0 is nan"},
      {one_matrix(1, std::numeric_limits<float>::infinity(), 3), "element 1 is inf"},
      {one_matrix(1, 2, -3), "tensor \"a.weight.counts\": element 0 is -3"},
  };
  for (const Wrong& each : wrong) {
    const Status status = parse_status(each.file);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << each.said;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("i.gguf: "), HasSubstr(each.said)));
  }
  EXPECT_TRUE(parse_status(one_matrix(1, 0, 3)).ok()) << parse_status(one_matrix(1, 0, 3)).message();
}

TEST(ImportanceMatrix, OlderFormIsRefusedWithTheWayOut) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/old.dat";
  std::ofstream(path, std::ios::binary) << std::string("\1\0\0\0\3\0\0\0abc", 11);
  const Status status = read_importance(path).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("old.dat"), HasSubstr("llama-imatrix --in-file OLD -o NEW.gguf")));
  EXPECT_EQ(read_importance(dir.path() + "/none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera
