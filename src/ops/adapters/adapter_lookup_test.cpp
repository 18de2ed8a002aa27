// Tests the operator that reads, for each token, the column of an embedding adapter's matrix A. Catches: a read of
// another token's column, of another adapter's slot, or past the adapter's rank; a change to a row that an image
// replaces; a read for an id that another tensor-parallel rank has; operands of wrong shapes that are accepted.
#include "tessera/ops/adapters/adapter_lookup.h"

#include <gmock/gmock.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr std::int64_t kLookupSlots = 3;
constexpr std::int64_t kLookupRank = 4;
constexpr std::int64_t kLookupIds = 10;
constexpr std::int64_t kFirstLookupId = 20;  // the first id that this tensor-parallel rank has

struct LookupRow {
  std::int32_t id;
  std::int32_t slot;
  std::int32_t given;
  bool counts;
};
constexpr LookupRow kLookupRows[] = {{20, 0, -1, true},  {29, 2, -1, true},  {25, 1, -1, true},  {25, -1, -1, false},
                                     {25, 3, -1, false}, {19, 0, -1, false}, {30, 0, -1, false}, {24, 0, 5, false}};
constexpr std::int32_t kLookupRanks[] = {4, 0, 2};

std::vector<HostTensor> lookup_operands(DType dtype, bool given) {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> rows;
  for (const LookupRow& row : kLookupRows) {
    ids.push_back(row.id);
    slots.push_back(row.slot);
    rows.push_back(row.given);
  }
  const std::int64_t count = std::ssize(ids);
  std::vector<std::int32_t> table = slots;  // the kernels read only this list of the table
  table.resize(static_cast<std::size_t>(kAdapterRowLists * count));
  std::vector<HostTensor> operands{int_tensor({count}, ids),
                                   random_tensor(dtype, {kLookupSlots, kLookupRank, kLookupIds}, 1),
                                   int_tensor({kLookupSlots, 1}, {kLookupRanks[0], kLookupRanks[1], kLookupRanks[2]}),
                                   int_tensor({kAdapterRowLists, count}, table)};
  if (given) operands.push_back(int_tensor({count}, rows));
  return operands;
}

TEST(AdapterLookup, ReadsTheColumnOfEachToken) {
  for (const DType dtype : kFloatingDTypes)
    for (const bool given : {true, false}) {
      const std::vector<HostTensor> operands = lookup_operands(dtype, given);
      const OpOutcome out = run_op(kAdapterLookup, kAdapterLookupCpu, operands, {{"first_row", kFirstLookupId}});
      for (std::size_t i = 0; i < std::size(kLookupRows); ++i)
        for (std::int64_t r = 0; r < kLookupRank; ++r) {
          const LookupRow& row = kLookupRows[i];
          const bool counts = (row.counts || (!given && row.given >= 0)) && r < kLookupRanks[row.slot];
          const double want =
              counts ? operands[1].at((row.slot * kLookupRank + r) * kLookupIds + row.id - kFirstLookupId) : 0;
          EXPECT_EQ(out.results[0].at(static_cast<std::int64_t>(i) * kLookupRank + r), want) << i << " " << r;
        }
    }
}

TEST(AdapterLookup, RefusesOperandsThatDoNotFit) {
  const ir::Type ids{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type a{DType::kBFloat16, {4, 16, 64}};
  const ir::Type ranks{DType::kInt32, {4, 1}};
  const ir::Type slots{DType::kInt32, {kAdapterRowLists, ir::Symbol::kTokens}};
  EXPECT_EQ((*infer_types(kAdapterLookup, {ids, a, ranks, slots}))[0],
            (ir::Type{DType::kFloat32, {ir::Symbol::kTokens, 16}}));
  EXPECT_THAT(infer_error(kAdapterLookup, {ids, a, {DType::kInt32, {4, 2}}, slots}), HasSubstr("ranks is i32[4, 2]"));
  EXPECT_THAT(infer_error(kAdapterLookup, {ids, a, ranks, {DType::kInt32, {4}}}), HasSubstr("slots is i32[4]"));
  EXPECT_THAT(infer_error(kAdapterLookup, {ids, a, ranks, slots}, {{"first_row", std::int64_t{-1}}}),
              HasSubstr("first_row = -1"));
}

}  // namespace
}  // namespace tessera::testing
