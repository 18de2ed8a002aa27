// Catches: a row that uses another row's adapter slot, module or LoRA rank; a read of undefined memory (rows of A past
// an adapter's rank, or padding in the table of rows); a change to a row without an adapter; sums whose order depends
// on the number of rows; operands of wrong shapes that are accepted.
#include "tessera/ops/adapters/adapter_linear.h"

#include <gmock/gmock.h>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

// A linear with three column ranges of two modules, and five slots.
struct Case {
  DType dtype = DType::kFloat32;
  std::int64_t rows = 7;
  std::int64_t in = 96;
  std::vector<std::int64_t> ranges{40, 24, 16};
  std::vector<std::int64_t> range_modules{0, 1, 0};
  std::int64_t rank = 8;

  static constexpr std::int64_t kSlots = 5;
  static constexpr std::int64_t kModules = 2;
  std::int64_t out() const { return ranges[0] + ranges[1] + ranges[2]; }
  ir::Attributes attributes() const { return {{"rows", ranges}, {"modules", range_modules}}; }
};

HostTensor ints(std::vector<std::int64_t> dims, const std::function<std::int32_t(std::int64_t)>& value) {
  HostTensor t = poisoned_tensor(DType::kInt32, std::move(dims));
  for (std::int64_t i = 0; i < t.size(); ++i) {
    const std::int32_t v = value(i);
    std::memcpy(t.bytes.data() + i * 4, &v, 4);
  }
  return t;
}

// Slot 3 has rank 0 for both modules, and slot 4 has the largest rank for both. In the other slots the two modules have
// different ranks.
HostTensor ranks(const Case& c) {
  const std::vector<std::int64_t> of{c.rank, 1, 0, c.rank - 3, 2, 3, 0, 0, c.rank, c.rank};
  return ints({Case::kSlots, Case::kModules},
              [&](std::int64_t i) { return static_cast<std::int32_t>(of[static_cast<std::size_t>(i)]); });
}

// Returns the table of the rows [first, last). Every slot has rows, and some rows have no adapter.
HostTensor table(std::int64_t first, std::int64_t last) {
  std::vector<std::int32_t> slots;
  for (std::int64_t i = first; i < last; ++i) slots.push_back(static_cast<std::int32_t>(i % 6) - 1);
  HostTensor t = poisoned_tensor(DType::kInt32, {kAdapterRowLists, last - first});
  write_adapter_rows(slots, slots.size(), t.bytes.data());
  return t;
}

std::vector<HostTensor> shrink_operands(const Case& c) {
  std::vector<HostTensor> operands{random_tensor(c.dtype, {c.rows, c.in}, 1),
                                   random_tensor(c.dtype, {Case::kSlots, Case::kModules * c.rank, c.in}, 2), ranks(c),
                                   table(0, c.rows)};
  // Fills the rows of A past each module's rank with NaN.
  const std::size_t row = static_cast<std::size_t>(c.in) * ir::dtype_size(c.dtype);
  for (std::int64_t s = 0; s < Case::kSlots * Case::kModules; ++s)
    for (auto r = static_cast<std::int64_t>(operands[2].at(s)); r < c.rank; ++r)
      std::fill_n(operands[1].bytes.begin() + (s * c.rank + r) * static_cast<std::ptrdiff_t>(row), row,
                  std::byte{0xff});
  return operands;
}

std::vector<HostTensor> add_operands(const Case& c) {
  return {random_tensor(c.dtype, {c.rows, c.out()}, 3),
          random_tensor(DType::kFloat32, {c.rows, Case::kModules * c.rank}, 4),
          random_tensor(c.dtype, {Case::kSlots, c.rank, c.out()}, 5),
          ranks(c),
          random_tensor(DType::kFloat32, {Case::kSlots, Case::kModules}, 6),
          table(0, c.rows)};
}

std::int64_t slot_of(const HostTensor& table, std::int64_t row) { return static_cast<std::int64_t>(table.at(row)); }

// Fills the rows without an adapter with zeros, because adapter_shrink leaves them undefined.
HostTensor of_adapted_rows(HostTensor t, const HostTensor& table) {
  for (std::int64_t row = 0; row < t.dims[0]; ++row)
    if (slot_of(table, row) < 0)
      std::fill_n(t.bytes.begin() + row * static_cast<std::ptrdiff_t>(row_bytes(t)), row_bytes(t), std::byte{0});
  return t;
}

std::vector<double> shrink_reference(const Case& c, const std::vector<HostTensor>& o) {
  std::vector<double> t;
  for (std::int64_t row = 0; row < c.rows; ++row)
    for (std::int64_t n = 0; n < Case::kModules * c.rank; ++n) {
      const std::int64_t slot = slot_of(o[3], row);
      double sum = 0;
      if (slot >= 0 && static_cast<double>(n % c.rank) < o[2].at(slot * Case::kModules + n / c.rank))
        for (std::int64_t k = 0; k < c.in; ++k)
          sum += o[0].at(row * c.in + k) * o[1].at((slot * Case::kModules * c.rank + n) * c.in + k);
      t.push_back(sum);
    }
  return t;
}

std::vector<double> add_reference(const Case& c, const std::vector<HostTensor>& o) {
  std::vector<double> y;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const std::int64_t slot = slot_of(o[5], row);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < c.ranges.size(); ++i)
      for (std::int64_t j = 0; j < c.ranges[i]; ++j, ++column) {
        double sum = 0;
        const std::int64_t at = slot * Case::kModules + c.range_modules[i];
        for (std::int64_t r = 0; slot >= 0 && static_cast<double>(r) < o[3].at(at); ++r)
          sum += o[1].at((row * Case::kModules + c.range_modules[i]) * c.rank + r) *
                 o[2].at((slot * c.rank + r) * c.out() + column);
        y.push_back(o[0].at(row * c.out() + column) + (slot < 0 ? 0 : o[4].at(at) * sum));
      }
  }
  return y;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> made;
    for (const DType dtype : kFloatingDTypes) {
      made.push_back({.dtype = dtype});
      made.push_back({.dtype = dtype, .rows = 1, .in = 33, .ranges = {3, 5, 7}});
      made.push_back({.dtype = dtype, .rows = 0});
      made.push_back({.dtype = dtype, .rows = 70, .in = 256, .ranges = {512, 128, 8}, .rank = 16});
      // With 16-bit types these sizes run on tensor cores. They cover few rows, as in a decode step, and many rows.
      // They also cover few and many input columns. Two of the cases have a rank above 16 and therefore need several
      // tensor-core products, each of depth 16.
      made.push_back({.dtype = dtype, .rows = 6, .in = 4168, .ranges = {64, 128, 64}, .rank = 16});
      made.push_back({.dtype = dtype, .rows = 6, .in = 16392, .ranges = {64, 64, 64}, .rank = 5});
      made.push_back({.dtype = dtype, .rows = 20, .in = 14336, .ranges = {64, 64, 64}, .rank = 5});
      made.push_back({.dtype = dtype, .rows = 10, .in = 16392, .ranges = {64, 64, 64}, .rank = 4});
      made.push_back({.dtype = dtype, .rows = 33, .in = 520, .ranges = {64, 64, 64}, .rank = 40});
      made.push_back({.dtype = dtype, .rows = 1100, .in = 96, .ranges = {64, 128, 64}, .rank = 24});
      made.push_back({.dtype = dtype, .rows = 4100, .in = 40, .ranges = {64, 32, 64}, .rank = 16});
      made.push_back({.dtype = dtype, .rows = 1030, .in = 9000, .ranges = {64, 64, 64}, .rank = 5});
      made.push_back({.dtype = dtype, .rows = 4100, .in = 304, .ranges = {64, 32, 64}, .rank = 12});
    }
    return made;
  }();
  return all;
}

TEST(AdapterShrink, MatchesTheReference) {
  for (const Case& c : cases()) {
    const std::vector<HostTensor> operands = shrink_operands(c);
    const OpOutcome out = run_op(kAdapterShrink, kAdapterShrinkCpu, operands);
    expect_close(of_adapted_rows(out.results[0], operands[3]), shrink_reference(c, operands),
                 tolerance(DType::kFloat32, c.in > 8192 ? 32 : 4),
                 "adapter_shrink " + std::to_string(c.rows) + "x" + std::to_string(c.in));
  }
}

// The bits of a row's result depend neither on the other rows nor on the adapters of the other rows.
TEST(AdapterShrink, RowsAreIndependentOfTheOthers) {
  for (const std::int64_t rows : {6, 40, 1100}) {
    const Case c{.dtype = DType::kBFloat16, .rows = rows, .in = 4168};
    const std::vector<HostTensor> operands = shrink_operands(c);
    const OpOutcome all = run_op(kAdapterShrink, kAdapterShrinkCpu, operands);
    std::vector<HostTensor> alone = operands;  // only row 1 has an adapter, and all other rows are NaN
    std::vector<std::int32_t> slots(static_cast<std::size_t>(rows), -1);
    slots[1] = 0;
    write_adapter_rows(slots, slots.size(), alone[3].bytes.data());
    const HostTensor row = slice_rows(operands[0], 1, 2);
    std::ranges::fill(alone[0].bytes, std::byte{0xff});
    std::ranges::copy(row.bytes, alone[0].bytes.begin() + std::ssize(row.bytes));
    const OpOutcome one = run_op(kAdapterShrink, kAdapterShrinkCpu, alone);
    EXPECT_EQ(slice_rows(all.results[0], 1, 2).bytes, slice_rows(one.results[0], 1, 2).bytes) << rows << " rows";
  }
}

TEST(AdapterAdd, MatchesTheReference) {
  for (const Case& c : cases()) {
    const std::vector<HostTensor> operands = add_operands(c);
    const OpOutcome out = run_op(kAdapterAdd, kAdapterAddCpu, operands, c.attributes());
    expect_close(out.operands[0], add_reference(c, operands), tolerance(c.dtype),
                 "adapter_add " + std::to_string(c.rows) + "x" + std::to_string(c.out()));
  }
}

TEST(AdapterAdd, KeepsTheBitsOfRowsWithoutAdapters) {
  for (const Case& c : cases()) {
    const std::vector<HostTensor> operands = add_operands(c);
    const OpOutcome out = run_op(kAdapterAdd, kAdapterAddCpu, operands, c.attributes());
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const std::int64_t slot = slot_of(operands[5], row);
      if (slot >= 0 && slot != 3) continue;  // slot 3 has rank 0
      EXPECT_EQ(slice_rows(out.operands[0], row, row + 1).bytes, slice_rows(operands[0], row, row + 1).bytes)
          << "row " << row;
    }
  }
}

// Row counts for which the CUDA kernels divide their work differently (adapter_chunk_rows()).
constexpr std::int64_t kCounts[] = {1, 3, 8, 9, 40, 1030};

TEST(AdapterShrink, DeterministicRowsAreIndependentOfTheirNumber) {
  for (const DType dtype : kFloatingDTypes) {
    const Case c{.dtype = dtype, .rows = 1100, .in = 2120};
    const std::vector<HostTensor> operands = shrink_operands(c);
    ForwardContext context;
    context.limits.deterministic = true;
    const OpOutcome all = run_op(kAdapterShrink, kAdapterShrinkCpu, operands, {}, context);
    const HostTensor expected = of_adapted_rows(all.results[0], operands[3]);
    for (const std::int64_t count : kCounts) {
      std::vector<HostTensor> some = operands;
      some[0] = slice_rows(operands[0], 2, 2 + count);
      some[3] = table(2, 2 + count);
      const OpOutcome part = run_op(kAdapterShrink, kAdapterShrinkCpu, some, {}, context);
      EXPECT_EQ(slice_rows(expected, 2, 2 + count).bytes, of_adapted_rows(part.results[0], some[3]).bytes)
          << count << " rows of " << ir::dtype_name(dtype);
    }
  }
}

TEST(AdapterAdd, RowsAreIndependentOfTheirNumber) {
  for (const DType dtype : kFloatingDTypes) {
    const Case c{.dtype = dtype, .rows = 1100, .ranges = {64, 128, 64}, .rank = 24};
    const std::vector<HostTensor> operands = add_operands(c);
    const OpOutcome all = run_op(kAdapterAdd, kAdapterAddCpu, operands, c.attributes());
    for (const std::int64_t count : kCounts) {
      std::vector<HostTensor> some = operands;
      for (const std::size_t i : {0, 1}) some[i] = slice_rows(operands[i], 2, 2 + count);
      some[5] = table(2, 2 + count);
      const OpOutcome part = run_op(kAdapterAdd, kAdapterAddCpu, some, c.attributes());
      EXPECT_EQ(slice_rows(all.operands[0], 2, 2 + count).bytes, part.operands[0].bytes)
          << count << " rows of " << ir::dtype_name(dtype);
    }
  }
}

TEST(AdapterOps, RefuseOperandsThatDoNotFit) {
  const ir::Type x{DType::kBFloat16, {ir::Symbol::kTokens, 64}};
  const ir::Type a{DType::kBFloat16, {4, 16, 64}};
  const ir::Type b{DType::kBFloat16, {4, 8, 64}};
  const ir::Type of_modules{DType::kInt32, {4, 2}};
  const ir::Type scales{DType::kFloat32, {4, 2}};
  const ir::Type rows{DType::kInt32, {kAdapterRowLists, ir::Symbol::kTokens}};
  const ir::Type t{DType::kFloat32, {ir::Symbol::kTokens, 16}};
  EXPECT_EQ((*infer_types(kAdapterShrink, {x, a, of_modules, rows}))[0], t);
  EXPECT_THAT(infer_error(kAdapterShrink, {x, b, {DType::kInt32, {4, 3}}, rows}),
              HasSubstr("a has 8 rows for 3 modules"));
  EXPECT_THAT(infer_error(kAdapterShrink, {t, a, of_modules, rows}), HasSubstr("a is bf16[4, 16, 64]"));
  EXPECT_THAT(infer_error(kAdapterShrink, {x, a, of_modules, {DType::kInt32, {4}}}), HasSubstr("rows is i32[4]"));

  using Ints = std::vector<std::int64_t>;
  const std::vector<ir::Type> add{x, t, b, of_modules, scales, rows};
  const auto error = [&](const Ints& of_ranges, const Ints& modules) {
    return infer_error(kAdapterAdd, add, {{"rows", of_ranges}, {"modules", modules}});
  };
  EXPECT_EQ(error({40, 24}, {0, 1}), "");
  EXPECT_THAT(error({40, 20}, {0, 1}), HasSubstr("add up to the 64 columns of y"));
  EXPECT_THAT(error({64, 0}, {0, 1}), HasSubstr("rows must be above 0"));
  EXPECT_THAT(error({40, 24}, {0, 2}), HasSubstr("modules must be 0 to 1"));
  EXPECT_THAT(error({40, 24}, {0}), HasSubstr("an entry for each of 1 to 16 ranges"));
}

}  // namespace
}  // namespace tessera::testing
