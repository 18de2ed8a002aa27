// Makes quantised matrices for tests, and dequantises them in double precision.
#pragma once

#include <cmath>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/quantised/quantised_matrix.h"
#include "tessera/ops/testing/device_calls.h"

namespace tessera::testing {

// Returns the number that a code of the type `values` stands for.
inline double value_of(QuantisedFormat::Values values, std::uint8_t code) {
  using V = QuantisedFormat::Values;
  if (values == V::kInt8) return static_cast<std::int8_t>(code);
  if (values == V::kInt4) return code;
  const bool wide = values == V::kE4M3;
  const int mantissa_bits = wide ? 3 : 1;
  const int bias = wide ? 7 : 1;
  const int magnitude = code & (wide ? 0x7f : 0x7);
  if (wide && magnitude == 0x7f) return std::nan("");
  const int exponent = magnitude >> mantissa_bits;
  const double fraction = (magnitude & ((1 << mantissa_bits) - 1)) / static_cast<double>(1 << mantissa_bits);
  const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (code & (wide ? 0x80 : 0x8)) != 0 ? -value : value;
}

// A random quantised matrix as operands of an operator, and its dequantised values.
struct QuantisedCase {
  std::vector<HostTensor> operands;  // w, scales, and the other operands of the format
  std::vector<double> values;        // [rows, cols]
};

// Makes a random matrix. If `numbers` is false, QuantisedCase::values stays empty, because computing the dequantised
// values takes most of the time.
inline QuantisedCase random_quantised(const QuantisedFormat& format, std::int64_t rows, std::int64_t cols,
                                      std::uint32_t seed, bool numbers = true) {
  std::mt19937 generator(seed);
  const auto random_bytes = [&](std::vector<std::int64_t> dims, int most) {
    HostTensor t = poisoned_tensor(ir::DType::kUInt8, std::move(dims));
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, static_cast<double>(generator() % (most + 1)));
    return t;
  };
  const bool pairs = format.scales == QuantisedFormat::Scales::kPairs;
  // In formats with offsets, codes of int8 are never negative (blocks/block_codes.h).
  const int most_code = pairs && format.values == QuantisedFormat::Values::kInt8 ? 127 : 255;
  const std::int64_t groups = (cols + format.group_cols - 1) / format.group_cols;
  const std::int64_t scale_rows = (rows + format.group_rows - 1) / format.group_rows;
  QuantisedCase c;
  c.operands.push_back(random_bytes({rows, cols / format.values_of_byte()}, most_code));
  HostTensor& w = c.operands[0];
  if (format.values == QuantisedFormat::Values::kE4M3)
    for (std::int64_t i = 0; i < w.size(); ++i)
      if ((w.raw<std::uint8_t>(i) & 0x7f) == 0x7f) w.set(i, 0x38);  // replaces NaN by 1
  const bool small = format.scales == QuantisedFormat::Scales::kE4M3;
  const bool halves = pairs || format.scales == QuantisedFormat::Scales::kFloat16;
  c.operands.push_back(small ? random_bytes({scale_rows, groups}, 0x58)
                             : random_tensor(halves ? ir::DType::kFloat16 : ir::DType::kFloat32,
                                             {scale_rows, pairs ? 2 * groups : groups}, seed + 1, 0.001, 0.01));
  if (format.factor) c.operands.push_back(random_tensor(ir::DType::kFloat32, {rows}, seed + 2, 0.001, 0.01));
  if (format.zeros) c.operands.push_back(random_bytes({rows, groups}, 15));
  if (format.groups) {
    HostTensor of_columns = poisoned_tensor(ir::DType::kInt32, {cols});
    for (std::int64_t i = 0; i < cols; ++i) of_columns.set(i, static_cast<double>(generator() % groups));
    c.operands.push_back(std::move(of_columns));
  }
  if (!numbers) return c;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < cols; ++k) {
      const std::int64_t at = r * cols + k;
      const auto byte = c.operands[0].raw<std::uint8_t>(at / format.values_of_byte());
      const bool half = format.values_of_byte() == 2;
      const auto code = static_cast<std::uint8_t>(!half ? byte : at % 2 == 0 ? byte & 15 : byte >> 4);
      std::size_t next = 2;
      const std::int64_t group =
          format.groups ? static_cast<std::int64_t>(c.operands.back().at(k)) : k / format.group_cols;
      const std::int64_t scale_index = r / format.group_rows * groups + group;
      double scale = small ? value_of(QuantisedFormat::Values::kE4M3, c.operands[1].raw<std::uint8_t>(scale_index))
                           : c.operands[1].at(pairs ? 2 * scale_index : scale_index);
      if (format.factor) scale *= c.operands[next++].at(r);
      double zero = format.values == QuantisedFormat::Values::kInt4 ? format.default_zero() : 0;
      if (format.zeros) zero = c.operands[next].at(r * groups + group);
      const double offset = pairs ? c.operands[1].at(2 * scale_index + 1) : 0;
      c.values.push_back((value_of(format.values, code) - zero) * scale + offset);
    }
  return c;
}

// Returns the attributes of a quantised_linear.
inline ir::Attributes attributes_of(const QuantisedFormat& format, bool bias, bool residual) {
  ir::Attributes attributes = format.attributes();
  attributes.emplace_back("bias", bias);
  attributes.emplace_back("residual", residual);
  return attributes;
}

// A quantised_linear of x [m, k] with w in int4 [n, k], in groups of 128 columns.
struct Int4Sizes {
  std::int64_t m, n, k;
  bool zeros;

  QuantisedFormat format() const {
    return {.values = QuantisedFormat::Values::kInt4, .group_rows = 1, .group_cols = 128, .zeros = zeros};
  }
};

// Expects that all of `runs` runs of the product have the same bits.
inline void expect_same_bits(const Int4Sizes& c, int runs) {
  DeviceCalls calls;
  std::vector<TensorView> operands{calls.place(random_tensor(ir::DType::kBFloat16, {c.m, c.k}, 1))};
  for (const HostTensor& part : random_quantised(c.format(), c.n, c.k, 3, /*numbers=*/false).operands)
    operands.push_back(calls.weight(part));
  const DeviceCalls::Call& call = calls.add(kQuantisedLinear, operands, attributes_of(c.format(), false, false));
  std::vector<std::byte> first;
  for (int run = 0; run < runs; ++run) {
    ASSERT_TRUE(calls.run_each().ok());
    const HostTensor y = *calls.download(call.results[0]);
    if (run == 0) first = y.bytes;
    ASSERT_EQ(y.bytes, first) << c.m << " rows, k " << c.k << ", run " << run;
  }
}

}  // namespace tessera::testing
