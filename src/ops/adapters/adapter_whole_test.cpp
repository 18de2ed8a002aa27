// Tests adapters that replace the whole matrix of the LM head or the embedding. Catches: a row that gets the matrix of
// another adapter, or gets one although its own adapter has none; a change to a row that an image replaces, or to a row
// whose id belongs to another tensor-parallel rank; sums whose order depends on the number of rows.
#include "tessera/ops/adapters/adapter_whole.h"

#include <gmock/gmock.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr std::int64_t kWholeSlots = 4;

// The rows have the slots -1, 0, 1, 2, 3, -1, 0, … in this order. Slot 2 has no matrix.
std::int32_t slot_of_row(std::int64_t row) { return static_cast<std::int32_t>(row % (kWholeSlots + 1)) - 1; }
bool has_matrix(std::int32_t slot) { return slot >= 0 && slot != 2; }
HostTensor whole_sizes(std::int64_t size) {
  const auto m = static_cast<std::int32_t>(size);
  return int_tensor({kWholeSlots, 1}, {m, m, 0, m});
}

HostTensor whole_table(std::int64_t first, std::int64_t last) {
  std::vector<std::int32_t> slots;
  for (std::int64_t row = first; row < last; ++row) slots.push_back(slot_of_row(row));
  HostTensor t = poisoned_tensor(DType::kInt32, {kAdapterRowLists, last - first});
  write_adapter_rows(slots, slots.size(), t.bytes.data());
  return t;
}

struct WholeCase {
  DType dtype = DType::kFloat32;
  std::int64_t rows = 7;
  std::int64_t in = 96;
  std::int64_t out = 40;
};

std::vector<HostTensor> linear_operands(const WholeCase& c) {
  return {random_tensor(c.dtype, {c.rows, c.out}, 1), random_tensor(c.dtype, {c.rows, c.in}, 2),
          random_tensor(c.dtype, {kWholeSlots, c.out, c.in}, 3), whole_sizes(c.out), whole_table(0, c.rows)};
}

std::vector<WholeCase> linear_cases() {
  std::vector<WholeCase> made;
  for (const DType dtype : kFloatingDTypes) {
    made.push_back({.dtype = dtype});
    made.push_back({.dtype = dtype, .rows = 1, .in = 33, .out = 3});
    made.push_back({.dtype = dtype, .rows = 0});
    made.push_back({.dtype = dtype, .rows = 6, .in = 4168, .out = 24});
    made.push_back({.dtype = dtype, .rows = 40, .in = 256, .out = 1000});
    made.push_back({.dtype = dtype, .rows = 1100, .in = 96, .out = 52});
    made.push_back({.dtype = dtype, .rows = 4100, .in = 40, .out = 30});
  }
  return made;
}

TEST(AdapterWholeLinear, MatchesTheReference) {
  for (const WholeCase& c : linear_cases()) {
    const std::vector<HostTensor> operands = linear_operands(c);
    const OpOutcome out = run_op(kAdapterWholeLinear, kAdapterWholeLinearCpu, operands);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < c.rows; ++row)
      for (std::int64_t m = 0; m < c.out; ++m) {
        const std::int32_t slot = slot_of_row(row);
        double sum = has_matrix(slot) ? 0 : operands[0].at(row * c.out + m);
        for (std::int64_t k = 0; has_matrix(slot) && k < c.in; ++k)
          sum += operands[1].at(row * c.in + k) * operands[2].at((slot * c.out + m) * c.in + k);
        expected.push_back(sum);
      }
    expect_close(out.operands[0], expected, tolerance(c.dtype, 4),
                 "adapter_whole_linear " + std::to_string(c.rows) + "x" + std::to_string(c.in));
  }
}

TEST(AdapterWholeLinear, KeepsTheBitsOfRowsWithoutMatrices) {
  for (const WholeCase& c : linear_cases()) {
    const std::vector<HostTensor> operands = linear_operands(c);
    const OpOutcome out = run_op(kAdapterWholeLinear, kAdapterWholeLinearCpu, operands);
    for (std::int64_t row = 0; row < c.rows; ++row) {
      if (has_matrix(slot_of_row(row))) continue;
      EXPECT_EQ(slice_rows(out.operands[0], row, row + 1).bytes, slice_rows(operands[0], row, row + 1).bytes) << row;
    }
  }
}

TEST(AdapterWholeLinear, DeterministicRowsAreIndependentOfTheirNumber) {
  for (const DType dtype : kFloatingDTypes) {
    const std::vector<HostTensor> operands = linear_operands({.dtype = dtype, .rows = 1100, .in = 520, .out = 50});
    ForwardContext context;
    context.limits.deterministic = true;
    const OpOutcome all = run_op(kAdapterWholeLinear, kAdapterWholeLinearCpu, operands, {}, context);
    for (const std::int64_t count : {1, 3, 9, 40, 1030}) {
      std::vector<HostTensor> some = operands;
      for (const std::size_t i : {0, 1}) some[i] = slice_rows(operands[i], 2, 2 + count);
      some[4] = whole_table(2, 2 + count);
      const OpOutcome part = run_op(kAdapterWholeLinear, kAdapterWholeLinearCpu, some, {}, context);
      EXPECT_EQ(slice_rows(all.operands[0], 2, 2 + count).bytes, part.operands[0].bytes)
          << count << " rows of " << ir::dtype_name(dtype);
    }
  }
}

struct EmbeddingRow {
  std::int32_t id;
  std::int32_t slot;
  std::int32_t given;
  bool changes;
};
constexpr std::int64_t kWholeIds = 10;
constexpr std::int64_t kFirstWholeId = 20;  // the first id that this tensor-parallel rank has
constexpr EmbeddingRow kEmbeddingRows[] = {{20, 0, -1, true},   {29, 3, -1, true},  {25, 2, -1, false},
                                           {25, -1, -1, false}, {25, 4, -1, false}, {19, 0, -1, false},
                                           {30, 0, -1, false},  {24, 1, -1, true},  {24, 1, 5, false}};

TEST(AdapterWholeEmbedding, CopiesTheRowOfEachToken) {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> table;
  std::vector<std::int32_t> given;
  for (const EmbeddingRow& row : kEmbeddingRows) {
    ids.push_back(row.id);
    table.push_back(row.slot);
    given.push_back(row.given);
  }
  const std::int64_t rows = std::ssize(ids);
  table.resize(static_cast<std::size_t>(kAdapterRowLists * rows));  // the kernels read only the first list
  for (const DType dtype : kFloatingDTypes)
    for (const std::int64_t cols : {16, 9, 2056})
      for (const bool has_given : {true, false}) {
        std::vector<HostTensor> operands{random_tensor(dtype, {rows, cols}, 1), int_tensor({rows}, ids),
                                         random_tensor(dtype, {kWholeSlots, kWholeIds, cols}, 2), whole_sizes(cols),
                                         int_tensor({kAdapterRowLists, rows}, table)};
        if (has_given) operands.push_back(int_tensor({rows}, given));
        const OpOutcome out =
            run_op(kAdapterWholeEmbedding, kAdapterWholeEmbeddingCpu, operands, {{"first_row", kFirstWholeId}});
        for (std::int64_t i = 0; i < rows; ++i) {
          const EmbeddingRow& row = kEmbeddingRows[i];
          const bool changes = row.changes || (!has_given && row.given >= 0);
          const std::int64_t source = row.slot * kWholeIds + row.id - kFirstWholeId;
          EXPECT_EQ(slice_rows(out.operands[0], i, i + 1).bytes,
                    changes ? slice_rows(HostTensor{dtype, {kWholeSlots * kWholeIds, cols}, operands[2].bytes}, source,
                                         source + 1)
                                  .bytes
                            : slice_rows(operands[0], i, i + 1).bytes)
              << "row " << i << " of " << cols << " columns";
        }
      }
}

TEST(AdapterWhole, RefusesOperandsThatDoNotFit) {
  const ir::Dim t = ir::Symbol::kTokens;
  const ir::Type y{DType::kBFloat16, {t, 48}};
  const ir::Type x{DType::kBFloat16, {t, 64}};
  const ir::Type w{DType::kBFloat16, {4, 48, 64}};
  const ir::Type sizes{DType::kInt32, {4, 1}};
  const ir::Type rows{DType::kInt32, {kAdapterRowLists, t}};
  EXPECT_EQ(infer_error(kAdapterWholeLinear, {y, x, w, sizes, rows}), "");
  EXPECT_THAT(infer_error(kAdapterWholeLinear, {y, y, w, sizes, rows}), HasSubstr("w is bf16[4, 48, 64]"));
  EXPECT_THAT(infer_error(kAdapterWholeLinear, {y, x, w, {DType::kInt32, {4, 2}}, rows}),
              HasSubstr("sizes is i32[4, 2]"));
  EXPECT_THAT(infer_error(kAdapterWholeLinear, {y, x, w, sizes, {DType::kInt32, {t}}}), HasSubstr("rows is i32[T]"));
  const ir::Type ids{DType::kInt32, {t}};
  const ir::Type table{DType::kBFloat16, {4, 1000, 48}};
  EXPECT_EQ(infer_error(kAdapterWholeEmbedding, {y, ids, table, sizes, rows}), "");
  EXPECT_THAT(infer_error(kAdapterWholeEmbedding, {x, ids, table, sizes, rows}), HasSubstr("w is bf16[4, 1000, 48]"));
  EXPECT_THAT(infer_error(kAdapterWholeEmbedding, {y, ids, table, sizes, rows}, {{"first_row", std::int64_t{-1}}}),
              HasSubstr("first_row = -1"));
}

}  // namespace
}  // namespace tessera::testing
