// Catches: a row that is rounded with the importances of another row or expert; an unused entry of the importance
// matrix that the output's notes do not report; an importance matrix of another model that is accepted; an importance
// matrix that does not reduce the weighted error of a written file.
#include "tessera/model/quantise/tensor_importance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/gguf/gguf_writer.h"
#include "tessera/model/gguf/made_tensors.h"
#include "tessera/model/quantise/gguf_output.h"
#include "tessera/ops/quantised/blocks/dequantise.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kCols = 256;

std::vector<float> numbers(std::int64_t count) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& v : x) v = normal(generator);
  return x;
}

void add_tensor(GgufContent& content, const std::string& name, std::vector<std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  content.tensors.push_back({.name = name, .shape = std::move(shape), .numbers = make_numbers(numbers(elements))});
}

GgufContent two_layers() {
  GgufContent content;
  content.architecture = "llama";
  content.source = "m";
  content.layers = 2;
  content.metadata.set_string("general.architecture", "llama");
  add_tensor(content, "token_embd.weight", {4, kCols});
  add_tensor(content, "blk.0.attn_norm.weight", {kCols});
  add_tensor(content, "blk.0.attn_q.weight", {8, kCols});
  add_tensor(content, "blk.1.attn_q.weight", {8, kCols});
  return content;
}

ImportanceEntry entry_of(const std::string& name, std::int64_t cols = kCols, std::int64_t matrices = 1) {
  ImportanceEntry entry{.name = name,
                        .sums = std::vector<float>(static_cast<std::size_t>(cols * matrices), 1.0F),
                        .counts = std::vector<float>(static_cast<std::size_t>(matrices), 10.0F)};
  for (std::size_t i = 0; i < entry.sums.size(); i += 8) entry.sums[i] = 100.0F;
  return entry;
}

ImportanceMatrix matrix_of(std::vector<ImportanceEntry> entries) {
  return {.source = "i.gguf", .datasets = {"t.txt"}, .chunk_count = 2, .chunk_size = 8, .entries = std::move(entries)};
}

ImportanceMatrix both_layers() { return matrix_of({entry_of("blk.0.attn_q.weight"), entry_of("blk.1.attn_q.weight")}); }

Result<std::unique_ptr<QuantisedOutput>> plan(const char* type, const ImportanceMatrix& matrix) {
  return make_gguf_output(two_layers(), *find_file_type(type), &matrix);
}

TEST(TensorImportance, RowsHaveTheirExpertsImportances) {
  const TensorImportance importance({.name = "x", .sums = {1, 3, 0, 0, 8, 0, 5, 5}, .counts = {4, 7, 2, 0}}, /*rows=*/2,
                                    /*cols=*/2);
  const auto row = [&](std::int64_t r) { return std::vector<float>(importance.of_row(r), importance.of_row(r) + 2); };
  EXPECT_THAT(row(0), ElementsAre(0.5F, 1.5F));
  EXPECT_THAT(row(1), ElementsAre(0.5F, 1.5F));
  EXPECT_EQ(importance.of_row(2), nullptr) << "all sums of the second expert are 0";
  EXPECT_THAT(row(5), ElementsAre(2.0F, 1e-3F));
  EXPECT_EQ(importance.of_row(6), nullptr) << "the fourth expert has seen nothing";
  EXPECT_EQ(importance.num_unseen(), 2);
  EXPECT_EQ(TensorImportance().of_row(0), nullptr);
}

TEST(TensorImportance, HugeSumsStayWithinTheAcceptedRange) {
  const TensorImportance importance({.name = "x", .sums = {3e38F, 3e38F, 1e-30F, 0}, .counts = {1}}, 1, 4);
  EXPECT_FLOAT_EQ(importance.of_row(0)[0], 2.0F);
  EXPECT_FLOAT_EQ(importance.of_row(0)[3], 1e-3F);
}

TEST(TensorImportance, ReducesTheWeightedErrorOfAFile) {
  const test::ScratchDir dir;
  const ImportanceMatrix matrix = both_layers();
  for (const char* type : {"Q2_K", "Q3_K_M", "Q4_K_M", "IQ4_XS", "Q4_0"}) {
    double errors[2] = {};
    for (const bool important : {false, true}) {
      const std::string path = dir.path() + "/m.gguf";
      ASSERT_TRUE((*make_gguf_output(two_layers(), *find_file_type(type), important ? &matrix : nullptr))
                      ->write(path, {})
                      .ok());
      const GgufFile file = *GgufFile::open(path);
      for (const GgufTensor& tensor : file.tensors()) {
        if (!tensor.name.ends_with("attn_q.weight")) continue;
        const std::vector<float> exact = numbers(8 * kCols);
        std::vector<float> read(exact.size());
        dequantise(tensor.type, reinterpret_cast<const std::uint8_t*>(tensor.data.data()),
                   std::ssize(read) / block_type_info(tensor.type).elements, read.data());
        for (std::size_t i = 0; i < read.size(); ++i)
          errors[important ? 1 : 0] += static_cast<double>(matrix.entries[0].sums[i % kCols]) *
                                       std::pow(static_cast<double>(read[i] - exact[i]), 2);
      }
      EXPECT_EQ(file.find("quantize.imatrix.file") != nullptr, important);
      if (!important) continue;
      EXPECT_EQ(file.find("quantize.imatrix.file")->string(), "i.gguf");
      EXPECT_EQ(file.find("quantize.imatrix.dataset")->string(), "t.txt");
      EXPECT_EQ(file.find("quantize.imatrix.entries_count")->integer(), 2);
      EXPECT_EQ(file.find("quantize.imatrix.chunks_count")->integer(), 2);
    }
    EXPECT_LT(errors[1], 0.8 * errors[0]) << type;
  }
}

TEST(TensorImportance, NotesNameWhatIsNotUsed) {
  ImportanceMatrix matrix = both_layers();
  matrix.entries.insert(matrix.entries.begin(), entry_of("blk.0.attn_norm.weight"));
  const auto output = plan("Q4_K_S", matrix);
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_THAT((*output)->notes(),
              ElementsAre(HasSubstr("1 of 3 entries of i.gguf are not used"),
                          HasSubstr("1 of the tensors outside of the layers have no entry in i.gguf and are rounded "
                                    "without one; the first is token_embd.weight")));
}

TEST(TensorImportance, WrongMatricesAreRefusedByName) {
  struct Wrong {
    ImportanceMatrix matrix;
    const char* type;
    const char* said;
  };
  const Wrong wrong[] = {
      {matrix_of({entry_of("blk.0.attn_q.weight")}), "Q4_K_M",
       "i.gguf: there is no entry for tensor blk.1.attn_q.weight, which becomes Q4_K"},
      {matrix_of({entry_of("blk.0.attn_q.weight"), entry_of("blk.1.attn_q.weight"), entry_of("blk.2.attn_q.weight")}),
       "Q4_K_M", "entry \"blk.2.attn_q.weight\" is no tensor of m"},
      {matrix_of({entry_of("blk.0.attn_q.weight", 128), entry_of("blk.1.attn_q.weight")}), "Q4_K_M",
       "entry blk.0.attn_q.weight has 128 sums and 1 counts; accepted for this tensor: 256 sums, 1 counts"},
      {matrix_of({entry_of("blk.0.attn_q.weight", 128, 2), entry_of("blk.1.attn_q.weight")}), "Q4_K_M",
       "has 256 sums and 2 counts"},
      {both_layers(), "Q8_0", "no tensor of m uses an importance matrix in this type"},
      {both_layers(), "F16", "no tensor of m uses an importance matrix in this type"},
  };
  for (const Wrong& each : wrong) {
    const auto output = plan(each.type, each.matrix);
    EXPECT_EQ(output.status().code(), StatusCode::kInvalidArgument) << each.said;
    EXPECT_THAT(output.status().message(), HasSubstr(each.said));
  }
}

TEST(TensorImportance, NextTokenLayersNeedNoEntry) {
  GgufContent content = two_layers();
  content.draft_layers = 1;
  const ImportanceMatrix matrix = matrix_of({entry_of("blk.0.attn_q.weight")});
  const auto output = make_gguf_output(std::move(content), *find_file_type("Q4_K_M"), &matrix);
  ASSERT_TRUE(output.ok()) << output.status().message();
}

// llama-quantize gives the first eighth of the layers other types if there is an importance matrix.
TEST(TensorImportance, FirstLayersGetTheTypesOfLlamaQuantize) {
  GgufContent content;
  content.architecture = "llama";
  content.layers = 16;
  for (int layer = 0; layer < 16; ++layer)
    add_tensor(content, fmt::format("blk.{}.ffn_down.weight", layer), {1, kCols});
  const auto first_and_third = [&](const char* type, bool importance) {
    const ChosenTypes chosen = choose_types(content, *find_file_type(type), importance);
    return std::pair(chosen.types[1], chosen.types[2]);
  };
  using enum BlockType;
  EXPECT_EQ(first_and_third("IQ4_XS", false), std::pair(kQ5_K, kIQ4_XS));
  EXPECT_EQ(first_and_third("IQ4_XS", true), std::pair(kIQ4_XS, kIQ4_XS));
  EXPECT_EQ(first_and_third("Q4_0", false), std::pair(kQ4_0, kQ4_0));
  EXPECT_EQ(first_and_third("Q4_0", true), std::pair(kQ4_1, kQ4_0));
  EXPECT_EQ(first_and_third("Q5_0", true), std::pair(kQ5_1, kQ5_0));
  EXPECT_EQ(first_and_third("Q4_K_M", true), first_and_third("Q4_K_M", false));
}

}  // namespace
}  // namespace tessera
