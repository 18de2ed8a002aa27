// Catches: a rank that gets its neighbour's rows; a conversion that truncates instead of rounding; a loop that reads or
// writes past its piece (run under sanitizers).
#include "tessera/model/weights/tensor_copy.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/base/float16.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;

// Returns the value nearest to x in a floating-point format. The format has `mantissa` stored mantissa bits, and
// `min_exponent` is its smallest normal exponent. Ties go to even. Values beyond `greatest` become infinite. The
// computation uses double precision, scaling and nearbyint.
double rounded(double x, int mantissa, int min_exponent, double greatest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), min_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa);
  const double y = std::nearbyint(x / unit) * unit;
  return std::abs(y) > greatest ? std::copysign(std::numeric_limits<double>::infinity(), x) : y;
}
double rounded_f16(double x) { return rounded(x, 10, -14, 65504.0); }
double rounded_bf16(double x) { return rounded(x, 7, -126, 3.3895313892515355e38); }

TEST(FloatConvert, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float f16 = to_float(Float16{half});
    const float bf16 = to_float(BFloat16{half});
    if (std::isnan(f16)) {
      EXPECT_TRUE((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0);
      EXPECT_TRUE(std::isnan(to_float(Float16{from_float<Float16>(f16).bits})));
    } else {
      ASSERT_EQ(from_float<Float16>(f16).bits, half);
      const int exponent = static_cast<int>(bits >> 10 & 31);
      const double mantissa = static_cast<double>(bits & 1023) / 1024;
      const double want = exponent == 31  ? std::numeric_limits<double>::infinity()
                          : exponent == 0 ? std::ldexp(mantissa, -14)
                                          : std::ldexp(1 + mantissa, exponent - 15);
      ASSERT_EQ(static_cast<double>(std::abs(f16)), want) << bits;
      ASSERT_EQ(std::signbit(f16), (bits & 0x8000) != 0);
    }
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(to_float(BFloat16{from_float<BFloat16>(bf16).bits})));
    } else {
      ASSERT_EQ(from_float<BFloat16>(bf16).bits, half);
    }
  }
}

TEST(FloatConvert, RoundsToNearestEven) {
  std::mt19937 random(1);
  std::vector<float> values = {0.0f,
                               -0.0f,
                               65504.0f,
                               65519.996f,
                               65520.0f,
                               65536.0f,
                               1e30f,
                               -1e30f,
                               5.9604645e-8f,
                               2.9802322e-8f,
                               2.9802326e-8f,
                               6.0975552e-5f,
                               6.1035156e-5f,
                               1.00048828125f,
                               1.00146484375f,
                               3.4028235e38f,
                               -3.3961775e38f,
                               1e-45f,
                               1.17549e-38f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 200000; ++i) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {  // tests each value, each midpoint and their neighbours
    const float low = to_float(Float16{static_cast<std::uint16_t>(half)});
    const float high = half == 0x7bff ? 65536.0f : to_float(Float16{static_cast<std::uint16_t>(half + 1)});
    const float middle = low + (high - low) / 2;
    values.insert(values.end(), {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f), -middle});
  }
  for (float value : values) {
    const float f16 = to_float(Float16{from_float<Float16>(value).bits});
    const float bf16 = to_float(BFloat16{from_float<BFloat16>(value).bits});
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(f16) && std::isnan(bf16));
      continue;
    }
    ASSERT_EQ(static_cast<double>(f16), rounded_f16(value)) << value;
    ASSERT_EQ(static_cast<double>(bf16), rounded_bf16(value)) << value;
    ASSERT_EQ(std::signbit(f16), std::signbit(value));
    ASSERT_EQ(std::signbit(bf16), std::signbit(value));
  }
}

// A tensor with elements 0, 1, 2, … of type `dtype`, whose data are at an odd address.
struct Counting {
  Counting(StoredDtype dtype, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (std::int64_t size : shape) count *= size;
    storage.resize(1 + static_cast<std::size_t>(count * stored_dtype_bytes(dtype)));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(i % 251);
      const std::uint16_t half =
          dtype == StoredDtype::kF16 ? from_float<Float16>(value).bits : from_float<BFloat16>(value).bits;
      std::byte* at = storage.data() + 1 + i * stored_dtype_bytes(dtype);
      if (dtype == StoredDtype::kF32) std::memcpy(at, &value, sizeof value);
      if (dtype == StoredDtype::kF16 || dtype == StoredDtype::kBF16) std::memcpy(at, &half, sizeof half);
    }
    view = {"t", dtype, std::move(shape), std::span<const std::byte>(storage).subspan(1)};
  }
  std::vector<std::byte> storage;
  StoredTensor view;
};

TEST(CopyTensor, SlicesAndConverts) {
  const StoredDtype kTypes[] = {StoredDtype::kF32, StoredDtype::kF16, StoredDtype::kBF16};
  const TensorSlice kSlices[] = {{}, {0, 0, 5}, {0, 3, 2}, {1, 2, 4}, {1, 0, 6}, {2, 1, 2}, {0, 5, 0}};
  const std::int64_t d0 = 5, d1 = 6, d2 = 3;
  for (StoredDtype from : kTypes) {
    const Counting source(from, {d0, d1, d2});
    for (StoredDtype to : kTypes) {
      for (const TensorSlice& s : kSlices) {
        SCOPED_TRACE(std::to_string(s.dim) + ": " + std::to_string(s.begin) + " + " + std::to_string(s.size));
        std::vector<double> want;
        const auto inside = [&](std::int64_t dim, std::int64_t i) {
          return s.size < 0 || dim != s.dim || (i >= s.begin && i < s.begin + s.size);
        };
        for (std::int64_t i = 0; i < d0; ++i)
          for (std::int64_t j = 0; j < d1; ++j)
            for (std::int64_t k = 0; k < d2; ++k)
              if (inside(0, i) && inside(1, j) && inside(2, k))
                want.push_back(static_cast<double>((i * d1 + j) * d2 + k));
        std::vector<std::byte> got(want.size() * static_cast<std::size_t>(stored_dtype_bytes(to)));
        const Status status = copy_tensor(source.view, s, to, got);
        ASSERT_TRUE(status.ok()) << status.message();
        for (std::size_t i = 0; i < want.size(); ++i) {
          float value = 0;
          std::uint16_t half = 0;
          if (to == StoredDtype::kF32) std::memcpy(&value, &got[4 * i], 4);
          if (to != StoredDtype::kF32) {
            std::memcpy(&half, &got[2 * i], 2);
            value = to == StoredDtype::kF16 ? to_float(Float16{half}) : to_float(BFloat16{half});
          }
          ASSERT_EQ(static_cast<double>(value), want[i]) << i;
        }
      }
    }
  }
}

TEST(CopyTensor, LongRunsAreSplitCorrectly) {
  const Counting source(StoredDtype::kF32, {3, 70001});
  std::vector<std::byte> got(2 * 3 * 70000);
  ASSERT_TRUE(copy_tensor(source.view, {1, 1, 70000}, StoredDtype::kBF16, got).ok());
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 70000; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, &got[static_cast<std::size_t>(2 * (row * 70000 + i))], 2);
      ASSERT_EQ(half, from_float<BFloat16>(static_cast<float>((row * 70001 + i + 1) % 251)).bits) << row << " " << i;
    }
  }
}

TEST(CopyTensor, OtherTypesCopyToThemselves) {
  const std::vector<std::byte> storage(24, std::byte{7});
  const StoredTensor view{"ids", StoredDtype::kI64, {3}, storage};
  std::vector<std::byte> got(16);
  ASSERT_TRUE(copy_tensor(view, {0, 1, 2}, StoredDtype::kI64, got).ok());
  EXPECT_EQ(got[15], std::byte{7});
  expect_error(copy_tensor(view, StoredDtype::kF32, got), StatusCode::kUnimplemented, {"\"ids\"", "I64", "F32"});
}

TEST(CopyTensor, RefusesWrongSlicesAndBuffers) {
  const Counting source(StoredDtype::kF32, {4, 6});
  std::vector<std::byte> buffer(4 * 24);
  const auto kMax = std::numeric_limits<std::int64_t>::max();
  const std::pair<TensorSlice, std::vector<std::string>> cases[] = {
      {{2, 0, 1}, {"dimension 2", "[4, 6]", "0 to 1"}},
      {{-1, 0, 1}, {"dimension -1"}},
      {{0, 3, 2}, {"slice of 2 from 3", "[4, 6]", "0 to 4"}},
      {{0, -1, 2}, {"slice of 2 from -1"}},
      {{1, 0, 7}, {"slice of 7", "0 to 6"}},
      {{1, kMax, 1}, {"from 9223372036854775807"}},
      {{1, 1, kMax}, {"slice of 9223372036854775807"}},
  };
  for (const auto& [slice, parts] : cases) {
    std::vector<std::string> all = parts;
    all.push_back("\"t\"");
    expect_error(copy_tensor(source.view, slice, StoredDtype::kF32, buffer), StatusCode::kInvalidArgument, all);
  }
  expect_error(copy_tensor(source.view, StoredDtype::kBF16, buffer), StatusCode::kInvalidArgument,
               {"\"t\"", "96 bytes", "48", "BF16"});
  expect_error(copy_tensor(source.view, {0, 1, 1}, StoredDtype::kF32, buffer), StatusCode::kInvalidArgument,
               {"96 bytes", "24"});
}

TEST(CopyTensor, RefusesViewsOfTheWrongSize) {
  const std::vector<std::byte> storage(8);
  std::vector<std::byte> got(12);
  const StoredTensor view{"t", StoredDtype::kF32, {3}, storage};
  expect_error(copy_tensor(view, StoredDtype::kF32, got), StatusCode::kInvalidArgument,
               {"\"t\"", "8 bytes", "F32", "[3]"});
}

TEST(CopyTensor, Speed) {
  const Counting source(StoredDtype::kF32, {1024, 4096});
  std::vector<std::byte> storage(source.view.data.size());
  for (StoredDtype to : {StoredDtype::kF32, StoredDtype::kBF16, StoredDtype::kF16}) {
    const std::span<std::byte> target =
        std::span(storage).first(static_cast<std::size_t>(4 * 1024 * 1024 * stored_dtype_bytes(to)));
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_TRUE(copy_tensor(source.view, to, target).ok());
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    std::printf("F32 -> %s: %.2f GB/s read\n", std::string(stored_dtype_name(to)).c_str(),
                static_cast<double>(source.view.data.size()) / best / 1e9);
  }
}

}  // namespace
}  // namespace tessera
