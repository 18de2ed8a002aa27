// Catches: products with the matrices of another expert or slot, or with a wrong adapter rank; a row that changes
// although the adapter changes none of its experts; reads of the weights of an expert that another GPU has; sums that
// depend on other rows; operands of wrong shapes that are accepted.
#include "tessera/ops/moe/adapter_experts.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

constexpr std::int64_t kExpertRows = 6;
constexpr std::int64_t kExpertHidden = 24;
constexpr std::int64_t kExpertSize = 20;
constexpr std::int64_t kNumExperts = 3;
constexpr std::int64_t kExpertTopK = 2;
constexpr std::int64_t kExpertSlots = 2;
constexpr std::int64_t kExpertRank = 4;

HostTensor rank_tensor(std::vector<std::int64_t> dims, const std::vector<std::int32_t>& values) {
  HostTensor t = poisoned_tensor(DType::kInt32, std::move(dims));
  std::memcpy(t.bytes.data(), values.data(), values.size() * sizeof(values[0]));
  return t;
}

// Returns the table of adapter_rows.h with only its slots filled in, because the kernels read nothing else of it.
HostTensor slot_table(std::vector<std::int32_t> slots) {
  const std::int64_t rows = std::ssize(slots);
  slots.resize(static_cast<std::size_t>(kAdapterRowLists * rows));
  return rank_tensor({kAdapterRowLists, rows}, slots);
}

// Returns operands in which slot 1 changes only expert 2. Row 2 has no adapter, and row 4 has a slot that does not
// exist. Row 5 has slot 1, but its experts are not changed. Expert 7 is on another GPU.
std::vector<HostTensor> expert_operands(DType dtype) {
  return {random_tensor(dtype, {kExpertRows, kExpertHidden}, 1),
          random_tensor(dtype, {kExpertRows, kExpertHidden}, 2),
          rank_tensor({kExpertRows, kExpertTopK}, {0, 1, 2, 0, 1, 2, 7, 2, 0, 1, 1, 0}),
          random_tensor(DType::kFloat32, {kExpertRows, kExpertTopK}, 3),
          random_tensor(dtype, {kNumExperts, 2 * kExpertSize, kExpertHidden}, 4),
          random_tensor(dtype, {kNumExperts, kExpertHidden, kExpertSize}, 5),
          random_tensor(dtype, {kExpertSlots, 2 * kNumExperts * kExpertRank, kExpertHidden}, 6),
          random_tensor(dtype, {kExpertSlots, kExpertRank, 2 * kNumExperts * kExpertSize}, 7),
          rank_tensor({kExpertSlots, 2 * kNumExperts}, {4, 2, 0, 1, 3, 3, 0, 0, 0, 0, 2, 0}),
          random_tensor(DType::kFloat32, {kExpertSlots, 2 * kNumExperts}, 8),
          random_tensor(dtype, {kExpertSlots, kNumExperts * kExpertRank, kExpertSize}, 9),
          random_tensor(dtype, {kExpertSlots, kExpertRank, kNumExperts * kExpertHidden}, 10),
          rank_tensor({kExpertSlots, kNumExperts}, {1, 4, 0, 0, 0, 3}),
          random_tensor(DType::kFloat32, {kExpertSlots, kNumExperts}, 11),
          slot_table({0, 1, -1, 1, 2, 1})};
}

// Returns (w + scale · Bᵀ · A) · x for the matrix of one module, whose tables are operands `first` to `first` + 3.
std::vector<double> changed_product(const std::vector<HostTensor>& o, std::size_t first, std::int64_t slot,
                                    std::int64_t module, std::int64_t modules, const HostTensor& w, std::int64_t w_at,
                                    std::int64_t rows, const std::vector<double>& x) {
  const auto columns = static_cast<std::int64_t>(x.size());
  std::vector<double> y;
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < columns; ++i) sum += w.at(w_at + row * columns + i) * x[static_cast<std::size_t>(i)];
    for (std::int64_t r = 0; static_cast<double>(r) < o[first + 2].at(slot * modules + module); ++r) {
      double t = 0;
      for (std::int64_t i = 0; i < columns; ++i)
        t += o[first].at(((slot * modules + module) * kExpertRank + r) * columns + i) * x[static_cast<std::size_t>(i)];
      sum += o[first + 3].at(slot * modules + module) * t *
             o[first + 1].at((slot * kExpertRank + r) * modules * rows + module * rows + row);
    }
    y.push_back(rounded_to(o[0].dtype, sum));
  }
  return y;
}

std::vector<double> row_reference(const std::vector<HostTensor>& o, std::int64_t row) {
  const auto slot = static_cast<std::int64_t>(o[14].at(row));
  std::vector<double> x;
  for (std::int64_t i = 0; i < kExpertHidden; ++i) x.push_back(o[1].at(row * kExpertHidden + i));
  std::vector<double> y(kExpertHidden);
  for (std::int64_t k = 0; k < kExpertTopK; ++k) {
    const auto e = static_cast<std::int64_t>(o[2].at(row * kExpertTopK + k));
    if (e >= kNumExperts) continue;
    const std::int64_t at = e * 2 * kExpertSize * kExpertHidden;
    const auto gate = changed_product(o, 6, slot, 2 * e, 2 * kNumExperts, o[4], at, kExpertSize, x);
    const auto up =
        changed_product(o, 6, slot, 2 * e + 1, 2 * kNumExperts, o[4], at + kExpertSize * kExpertHidden, kExpertSize, x);
    std::vector<double> a;
    for (std::size_t i = 0; i < gate.size(); ++i)
      a.push_back(rounded_to(o[0].dtype, rounded_to(o[0].dtype, gate[i] / (1 + std::exp(-gate[i]))) * up[i]));
    const auto down =
        changed_product(o, 10, slot, e, kNumExperts, o[5], e * kExpertHidden * kExpertSize, kExpertHidden, a);
    for (std::size_t i = 0; i < down.size(); ++i) y[i] += o[3].at(row * kExpertTopK + k) * down[i];
  }
  return y;
}

constexpr bool kChangedRows[kExpertRows] = {true, true, false, true, false, false};

TEST(AdapterExperts, ChangedRowsMatchTheReferenceAndOthersStay) {
  for (const DType dtype : kFloatingDTypes) {
    const std::vector<HostTensor> operands = expert_operands(dtype);
    const OpOutcome out = run_op(kAdapterExperts, kAdapterExpertsCpu, operands);
    for (std::int64_t row = 0; row < kExpertRows; ++row) {
      const HostTensor got = slice_rows(out.operands[0], row, row + 1);
      if (kChangedRows[row])
        expect_close(got, row_reference(operands, row), tolerance(dtype, 4), "row " + std::to_string(row));
      else
        EXPECT_EQ(got.bytes, slice_rows(operands[0], row, row + 1).bytes) << row;
    }
  }
}

TEST(AdapterExperts, RowsAreIndependentOfTheirNumber) {
  const std::vector<HostTensor> operands = expert_operands(DType::kBFloat16);
  const OpOutcome all = run_op(kAdapterExperts, kAdapterExpertsCpu, operands);
  std::vector<HostTensor> one = operands;
  for (const std::size_t i : {0, 1, 2, 3}) one[i] = slice_rows(operands[i], 3, 4);
  one[14] = slot_table({1});
  const OpOutcome alone = run_op(kAdapterExperts, kAdapterExpertsCpu, one);
  EXPECT_EQ(slice_rows(all.operands[0], 3, 4).bytes, alone.operands[0].bytes);
}

TEST(AdapterExperts, RefusesOperandsThatDoNotFit) {
  std::vector<ir::Type> types;
  for (const HostTensor& operand : expert_operands(DType::kFloat32)) {
    ir::Type type{operand.dtype, {}};
    for (const std::int64_t dim : operand.dims) type.shape.emplace_back(dim);
    types.push_back(std::move(type));
  }
  EXPECT_EQ(infer_error(kAdapterExperts, types), "");
  std::vector<ir::Type> wide = types;
  wide[8] = {DType::kInt32, {kExpertSlots, kNumExperts}};
  EXPECT_THAT(infer_error(kAdapterExperts, wide), HasSubstr("gate_up_ranks is i32[2, 3]"));
  EXPECT_THAT(infer_error(kAdapterExperts, types, {{"activation", std::string("clamped_swiglu")}}),
              HasSubstr("\"silu\" or \"gelu_tanh\""));
}

}  // namespace
}  // namespace tessera::testing
