// Catches: a slot, module or rank of another row, padding of the tables that is read, a row without an adapter that
// changes, sums whose order depends on the number of rows, and operands that do not fit.
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

// Slot 3 has no rank at all, slot 4 the largest for both modules; the others differ between modules.
HostTensor ranks(const Case& c) {
  const std::vector<std::int64_t> of{c.rank, 1, 0, c.rank - 3, 2, 3, 0, 0, c.rank, c.rank};
  return ints({Case::kSlots, Case::kModules},
              [&](std::int64_t i) { return static_cast<std::int32_t>(of[static_cast<std::size_t>(i)]); });
}

// Rows with every slot, with none, and with one that does not exist.
HostTensor slots(const Case& c) {
  return ints({c.rows}, [](std::int64_t i) { return static_cast<std::int32_t>(i % 7) - 1; });
}

std::vector<HostTensor> shrink_operands(const Case& c) {
  std::vector<HostTensor> operands{random_tensor(c.dtype, {c.rows, c.in}, 1),
                                   random_tensor(c.dtype, {Case::kSlots, Case::kModules * c.rank, c.in}, 2), ranks(c),
                                   slots(c)};
  // What lies behind a module's rank is NaN.
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
          slots(c)};
}

std::int64_t slot_of(const HostTensor& slots, std::int64_t row) {
  const auto slot = static_cast<std::int64_t>(slots.at(row));
  return slot < Case::kSlots ? slot : -1;
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
    }
    return made;
  }();
  return all;
}

TEST(AdapterShrink, MatchesTheReference) {
  for (const Case& c : cases()) {
    const std::vector<HostTensor> operands = shrink_operands(c);
    const OpOutcome out = run_op(kAdapterShrink, kAdapterShrinkCpu, operands);
    expect_close(out.results[0], shrink_reference(c, operands), tolerance(DType::kFloat32, 4),
                 "adapter_shrink " + std::to_string(c.rows) + "x" + std::to_string(c.in));
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
      if (slot >= 0 && slot != 3) continue;
      EXPECT_EQ(slice_rows(out.operands[0], row, row + 1).bytes, slice_rows(operands[0], row, row + 1).bytes)
          << "row " << row;
    }
  }
}

TEST(AdapterShrink, RowsAreIndependentOfTheirNumber) {
  for (const DType dtype : kFloatingDTypes) {
    const Case c{.dtype = dtype, .rows = 40};
    expect_any_row_count(kAdapterShrink, kAdapterShrinkCpu, shrink_operands(c), {0, 3}, {1, 2, 3, 5, 17, 39});
  }
}

TEST(AdapterAdd, RowsAreIndependentOfTheirNumber) {
  for (const DType dtype : kFloatingDTypes) {
    const Case c{.dtype = dtype, .rows = 40};
    const std::vector<HostTensor> operands = add_operands(c);
    const OpOutcome all = run_op(kAdapterAdd, kAdapterAddCpu, operands, c.attributes());
    for (const std::int64_t count : {1, 3, 18}) {
      std::vector<HostTensor> some = operands;
      for (const std::size_t i : {0, 1, 5}) some[i] = slice_rows(operands[i], 2, 2 + count);
      const OpOutcome part = run_op(kAdapterAdd, kAdapterAddCpu, some, c.attributes());
      EXPECT_EQ(slice_rows(all.operands[0], 2, 2 + count).bytes, part.operands[0].bytes) << count << " rows";
    }
  }
}

TEST(AdapterOps, RefuseOperandsThatDoNotFit) {
  const ir::Type x{DType::kBFloat16, {ir::Symbol::kTokens, 64}};
  const ir::Type a{DType::kBFloat16, {4, 16, 64}};
  const ir::Type b{DType::kBFloat16, {4, 8, 64}};
  const ir::Type of_modules{DType::kInt32, {4, 2}};
  const ir::Type scales{DType::kFloat32, {4, 2}};
  const ir::Type row_slots{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type t{DType::kFloat32, {ir::Symbol::kTokens, 16}};
  EXPECT_EQ((*infer_types(kAdapterShrink, {x, a, of_modules, row_slots}))[0], t);
  EXPECT_THAT(infer_error(kAdapterShrink, {x, b, {DType::kInt32, {4, 3}}, row_slots}),
              HasSubstr("a has 8 rows for 3 modules"));
  EXPECT_THAT(infer_error(kAdapterShrink, {t, a, of_modules, row_slots}), HasSubstr("a is bf16[4, 16, 64]"));
  EXPECT_THAT(infer_error(kAdapterShrink, {x, a, of_modules, {DType::kInt32, {4}}}), HasSubstr("slots is i32[4]"));

  using Ints = std::vector<std::int64_t>;
  const std::vector<ir::Type> add{x, t, b, of_modules, scales, row_slots};
  const auto error = [&](const Ints& rows, const Ints& modules) {
    return infer_error(kAdapterAdd, add, {{"rows", rows}, {"modules", modules}});
  };
  EXPECT_EQ(error({40, 24}, {0, 1}), "");
  EXPECT_THAT(error({40, 20}, {0, 1}), HasSubstr("add up to the 64 columns of y"));
  EXPECT_THAT(error({64, 0}, {0, 1}), HasSubstr("rows must be above 0"));
  EXPECT_THAT(error({40, 24}, {0, 2}), HasSubstr("modules must be 0 to 1"));
  EXPECT_THAT(error({40, 24}, {0}), HasSubstr("an entry for each of 1 to 16 ranges"));
}

}  // namespace
}  // namespace tessera::testing
