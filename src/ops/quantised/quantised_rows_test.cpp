// Catches: a code that is converted to another number than its type defines; a value from the wrong half of a byte; a
// scale or zero of another row or group.
#include "tessera/ops/quantised/quantised_rows.h"

#include "tessera/ops/quantised/quantised_test_util.h"

namespace tessera::testing {
namespace {

using Values = QuantisedFormat::Values;
using Scales = QuantisedFormat::Scales;

std::vector<TensorView> views_of(std::vector<HostTensor>& operands) {
  std::vector<TensorView> views;
  for (HostTensor& t : operands) views.push_back(t.view(DeviceAddress(t.bytes.data())));
  return views;
}

TEST(QuantisedRows, EveryE4M3CodeBecomesItsNumber) {
  std::vector<HostTensor> operands{poisoned_tensor(ir::DType::kUInt8, {1, 256}),
                                   filled_tensor(ir::DType::kFloat32, {1, 1}, 1)};
  for (int code = 0; code < 256; ++code) operands[0].set(code, code);
  const QuantisedMatrix m = make_quantised_matrix({.values = Values::kE4M3, .group_cols = 256}, views_of(operands));
  std::vector<float> y(256);
  quantised_rows(m, 0, 1, y.data(), nullptr);
  for (int code = 0; code < 256; ++code) {
    const double expected = value_of(Values::kE4M3, static_cast<std::uint8_t>(code));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(code)])) << code;
    } else {
      EXPECT_EQ(y[static_cast<std::size_t>(code)], expected) << code;
    }
  }
}

TEST(QuantisedRows, EveryE2M1CodeBecomesItsNumber) {
  std::vector<HostTensor> operands{poisoned_tensor(ir::DType::kUInt8, {1, 8}),
                                   filled_tensor(ir::DType::kFloat32, {1, 1}, 1)};
  for (int i = 0; i < 8; ++i) operands[0].set(i, 2 * i | (2 * i + 1) << 4);
  const QuantisedMatrix m = make_quantised_matrix({.values = Values::kE2M1, .group_cols = 16}, views_of(operands));
  std::vector<float> y(16);
  std::vector<std::uint8_t> codes(16);
  quantised_rows(m, 0, 1, y.data(), codes.data());
  const std::vector<float> expected{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};
  EXPECT_EQ(y, expected);
  EXPECT_TRUE(std::signbit(y[8]));
}

TEST(QuantisedRows, RowsOfEveryFormatHaveTheirScalesAndZeros) {
  const QuantisedFormat formats[] = {
      {.values = Values::kE4M3, .group_rows = 64, .group_cols = 128},
      {.values = Values::kE4M3, .group_rows = 1, .group_cols = 300},
      {.values = Values::kInt8, .group_rows = 1, .group_cols = 300},
      {.values = Values::kInt4, .group_rows = 1, .group_cols = 32},
      {.values = Values::kInt4, .group_rows = 1, .group_cols = 50, .zeros = true},
      {.values = Values::kInt4, .group_rows = 1, .group_cols = 32, .zeros = true, .groups = true},
      {.values = Values::kInt8, .scales = Scales::kFloat16, .group_rows = 1, .group_cols = 16},
      {.values = Values::kInt4, .scales = Scales::kPairs, .group_rows = 1, .group_cols = 32},
      {.values = Values::kE2M1, .scales = Scales::kE4M3, .group_rows = 1, .group_cols = 16, .factor = true}};
  constexpr std::int64_t kRows = 130;
  constexpr std::int64_t kCols = 300;
  for (const QuantisedFormat& format : formats) {
    QuantisedCase c = random_quantised(format, kRows, kCols, 7);
    const QuantisedMatrix m = make_quantised_matrix(format, views_of(c.operands));
    std::vector<std::uint8_t> codes(kCols);
    HostTensor y = poisoned_tensor(ir::DType::kFloat32, {kRows - 5, kCols});
    quantised_rows(m, 5, kRows - 5, reinterpret_cast<float*>(y.bytes.data()), codes.data());
    expect_close(y, std::span(c.values).subspan(5 * kCols), {.absolute = 1e-9, .relative = 2e-7}, "rows");
  }
}

}  // namespace
}  // namespace tessera::testing
