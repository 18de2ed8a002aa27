// Catches: a penalty that divides where it should multiply, or that is applied after the offset; edits of another row's
// tokens; masks that are read from the wrong bit or row; a masked token that keeps its logit; reads outside the lists
// if entries are out of range, as the entries of padding are.
#include "tessera/ops/sampling/logit_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;
using ::testing::HasSubstr;
using testing::HostTensor;
using testing::infer_error;
using testing::int_tensor;

using testing::kInf;
constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

struct Edit {
  std::int32_t id;
  double penalty = 1;
  double offset = 0;
};

struct RowEdits {
  std::vector<Edit> edits;
  std::vector<bool> allowed;  // [vocab]; an empty vector means no mask
};

// Makes the operands. The lists are a few entries longer than the rows need.
std::vector<HostTensor> operands(const HostTensor& logits, const std::vector<RowEdits>& rows) {
  const std::int64_t vocab = logits.dims[1];
  const std::int64_t words = (vocab + 31) / 32;
  std::vector<std::int32_t> first, count, ids, mask;
  std::vector<double> penalties, offsets;
  std::vector<std::int32_t> masks;
  for (const RowEdits& row : rows) {
    first.push_back(static_cast<std::int32_t>(ids.size()));
    count.push_back(static_cast<std::int32_t>(row.edits.size()));
    for (const Edit& e : row.edits) {
      ids.push_back(e.id);
      penalties.push_back(e.penalty);
      offsets.push_back(e.offset);
    }
    mask.push_back(row.allowed.empty() ? -1 : static_cast<std::int32_t>(masks.size()) / static_cast<int>(words));
    for (std::int64_t w = 0; w < words && !row.allowed.empty(); ++w) {
      std::uint32_t word = 0;
      for (std::int64_t i = 32 * w; i < std::min(vocab, 32 * w + 32); ++i)
        word |= row.allowed[static_cast<std::size_t>(i)] ? 1u << (i % 32) : 0u;
      masks.push_back(static_cast<std::int32_t>(word));
    }
  }
  ids.resize(ids.size() + 3, 0);
  penalties.resize(ids.size(), std::nan(""));
  offsets.resize(ids.size(), std::nan(""));
  masks.resize(masks.size() + static_cast<std::size_t>(words), 0);
  const auto row_count = static_cast<std::int64_t>(rows.size());
  const auto edit_count = static_cast<std::int64_t>(ids.size());
  const auto mask_count = static_cast<std::int64_t>(masks.size()) / words;
  return {logits,
          int_tensor({row_count}, first),
          int_tensor({row_count}, count),
          int_tensor({edit_count}, ids),
          testing::make_tensor(DType::kFloat32, {edit_count}, penalties),
          testing::make_tensor(DType::kFloat32, {edit_count}, offsets),
          int_tensor({row_count}, mask),
          int_tensor({mask_count, words}, masks)};
}

HostTensor edit(const HostTensor& logits, const std::vector<RowEdits>& rows) {
  return testing::run_op(kLogitEdits, kLogitEditsCpu, operands(logits, rows)).operands[0];
}

std::vector<double> reference(const HostTensor& logits, const std::vector<RowEdits>& rows) {
  std::vector<double> out = logits.values();
  const auto vocab = static_cast<std::size_t>(logits.dims[1]);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const Edit& e : rows[r].edits) {
      double& x = out[r * vocab + static_cast<std::size_t>(e.id)];
      x = (x > 0 ? x / e.penalty : x * e.penalty) + e.offset;
    }
    for (std::size_t i = 0; i < rows[r].allowed.size(); ++i)
      if (!rows[r].allowed[i]) out[r * vocab + i] = -kInf;
  }
  return out;
}

// Makes random edits. Some rows have many edits, some have none, and every third row has a mask.
std::vector<RowEdits> various_edits(std::size_t count, std::int32_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> penalty(0.5F, 2.0F);
  std::uniform_real_distribution<float> offset(-5.0F, 5.0F);
  std::vector<RowEdits> rows(count);
  for (std::size_t r = 0; r < count; ++r) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(vocab));
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    ids.resize(r % 4 == 1 ? 0 : random() % static_cast<std::uint32_t>(vocab + 1));
    for (const std::int32_t id : ids)
      rows[r].edits.push_back({id, static_cast<double>(penalty(random)), static_cast<double>(offset(random))});
    for (std::int32_t i = 0; i < vocab && r % 3 == 0; ++i) rows[r].allowed.push_back(random() % 3 == 0);
  }
  return rows;
}

TEST(LogitEdits, AgreesWithTheDefinition) {
  for (const std::int32_t vocab : {1, 31, 32, 33, 1000, 50001}) {
    const HostTensor logits =
        testing::random_tensor(DType::kFloat32, {7, vocab}, static_cast<std::uint32_t>(vocab), -20, 20);
    const std::vector<RowEdits> rows = various_edits(7, vocab, 3);
    testing::expect_close(edit(logits, rows), reference(logits, rows), testing::tolerance(DType::kFloat32),
                          "logit_edits, vocabulary " + std::to_string(vocab));
  }
}

TEST(LogitEdits, MultipliesZeroAndKeepsBitsAtPenaltyOne) {
  const HostTensor logits = testing::make_tensor(DType::kFloat32, {1, 3}, std::vector<double>{0, 1.1, -1.1});
  const HostTensor out = edit(logits, {{.edits = {{0, 1e30, 0.5}, {1, 1, 0}, {2, 1, 0}}, .allowed = {}}});
  EXPECT_EQ(out.raw<float>(0), 0.5F);
  EXPECT_EQ(out.raw<float>(1), 1.1F);
  EXPECT_EQ(out.raw<float>(2), -1.1F);
}

TEST(LogitEdits, HandlesInfiniteOffsetsMasksAndNaN) {
  const double nan = std::nan("");
  const HostTensor logits =
      testing::make_tensor(DType::kFloat32, {2, 4}, std::vector<double>{5, -kInf, nan, 2, 1, nan, 3, 4});
  const HostTensor out = edit(logits, {{.edits = {{0, 1, -kInf}, {1, 2, 50}, {2, 2, 1}}, .allowed = {}},
                                       {.edits = {{3, 2, 0}}, .allowed = {false, false, true, true}}});
  EXPECT_THAT(out.values(), ::testing::ElementsAre(-kInf, -kInf, ::testing::IsNan(), 2, -kInf, -kInf, 3, 2));
}

TEST(LogitEdits, IgnoresEntriesOutsideTheLists) {
  const HostTensor logits = testing::random_tensor(DType::kFloat32, {5, 40}, 1);
  std::vector<HostTensor> in = operands(logits, std::vector<RowEdits>(5));
  for (const auto& [row, first, count, mask] :
       {std::array{0, -1, -1, -1}, {1, kMax, kMax, kMax}, {2, 100, 3, 1}, {3, 0, 0, -7}, {4, -5, 5, 2}}) {
    in[1].set(row, first);
    in[2].set(row, count);
    in[6].set(row, mask);
  }
  EXPECT_EQ(testing::run_op(kLogitEdits, kLogitEditsCpu, in).operands[0].bytes, logits.bytes);
  // Row 0's range of edits extends past the end of the id list, and two of the list's three ids lie outside the
  // vocabulary. Only the edit of id 7 takes effect.
  in[1].set(0, 0), in[2].set(0, kMax);
  in[3].set(0, -1), in[3].set(1, 40), in[3].set(2, 7);
  for (const std::int64_t e : {0, 1, 2}) in[4].set(e, 1), in[5].set(e, 2);
  const HostTensor out = testing::run_op(kLogitEdits, kLogitEditsCpu, in).operands[0];
  for (std::int64_t i = 0; i < logits.size(); ++i)
    EXPECT_EQ(out.raw<float>(i), logits.raw<float>(i) + (i == 7 ? 2.0F : 0.0F)) << i;
}

// A row has the same bits alone and among other rows, even if the last row is filled with NaN.
TEST(LogitEdits, RowsAreIndependent) {
  const HostTensor logits = testing::random_tensor(DType::kFloat32, {6, 3000}, 1, -20, 20);
  const std::vector<HostTensor> in = operands(logits, various_edits(6, 3000, 9));
  const HostTensor all = testing::run_op(kLogitEdits, kLogitEditsCpu, in).operands[0];
  std::vector<HostTensor> alone = in;
  std::vector<HostTensor> poisoned = in;
  for (const std::size_t i : {0, 1, 2, 6}) {
    alone[i] = testing::slice_rows(in[i], 3, 4);
    std::fill(poisoned[i].bytes.end() - static_cast<std::ptrdiff_t>(testing::row_bytes(in[i])), poisoned[i].bytes.end(),
              std::byte{0xff});
  }
  EXPECT_EQ(testing::run_op(kLogitEdits, kLogitEditsCpu, alone).operands[0].bytes,
            testing::slice_rows(all, 3, 4).bytes);
  EXPECT_EQ(testing::slice_rows(testing::run_op(kLogitEdits, kLogitEditsCpu, poisoned).operands[0], 0, 5).bytes,
            testing::slice_rows(all, 0, 5).bytes);
}

TEST(LogitEdits, RefusesUnsupportedOperands) {
  const ir::Type logits{DType::kFloat32, {Symbol::kRows, 100}};
  const ir::Type row{DType::kInt32, {Symbol::kRows}};
  const ir::Type ids{DType::kInt32, {64}};
  const ir::Type values{DType::kFloat32, {64}};
  const ir::Type masks{DType::kInt32, {8, 4}};
  EXPECT_EQ(infer_error(kLogitEdits, {logits, row, row, ids, values, values, row, masks}), "");
  EXPECT_THAT(infer_error(kLogitEdits, {{DType::kFloat16, {4, 100}}, row, row, ids, values, values, row, masks}),
              HasSubstr("logits is f16"));
  EXPECT_THAT(infer_error(kLogitEdits, {logits, ids, row, ids, values, values, row, masks}), HasSubstr("first is"));
  EXPECT_THAT(infer_error(kLogitEdits, {logits, row, row, ids, {DType::kFloat32, {63}}, values, row, masks}),
              HasSubstr("penalties is f32[63]; it must be f32[64]"));
  EXPECT_THAT(infer_error(kLogitEdits, {logits, row, row, ids, values, values, row, {DType::kInt32, {8, 3}}}),
              HasSubstr("masks is i32[8, 3]; it must be i32[8, 4]"));
}

}  // namespace
}  // namespace tessera
