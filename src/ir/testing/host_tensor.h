// Makes tensors in host memory for tests, and compares them with a double-precision reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/base/cpu_clones.h"
#include "tessera/base/float16.h"
#include "tessera/base/float8.h"
#include "tessera/ir/tensor_view.h"
#include "tessera/ir/type.h"

namespace tessera::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

// A tensor in host memory. Its elements are read and written as double.
struct HostTensor {
  ir::DType dtype = ir::DType::kFloat32;
  std::vector<std::int64_t> dims;
  std::vector<std::byte> bytes;

  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size() / ir::dtype_size(dtype)); }
  template <class T>
  T raw(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void set_raw(std::int64_t i, T value) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  // Calls body with a value of the element's C++ type.
  template <class Body>
  void with_type(const Body& body) const {
    switch (dtype) {
      case ir::DType::kFloat32: return body(float());
      case ir::DType::kBFloat16: return body(BFloat16());
      case ir::DType::kFloat16: return body(Float16());
      case ir::DType::kInt32: return body(std::int32_t());
      case ir::DType::kInt64: return body(std::int64_t());
      case ir::DType::kUInt8: return body(std::uint8_t());
      case ir::DType::kFloat8E4M3: return body(Float8E4M3());
    }
  }
  // Reads elements [first, first + count).
  void read(std::int64_t first, std::int64_t count, double* out) const {
    with_type([&]<class T>(T) {
      for (std::int64_t i = 0; i < count; ++i) {
        const T value = raw<T>(first + i);
        if constexpr (std::is_integral_v<T>) {
          out[i] = static_cast<double>(value);
        } else {
          out[i] = static_cast<double>(to_float(value));
        }
      }
    });
  }
  // Writes elements from `first` on. element(i) is element first + i.
  template <class Element>
  void write(std::int64_t first, std::int64_t count, const Element& element) {
    with_type([&]<class T>(T) {
      for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_integral_v<T>) {
          set_raw(first + i, static_cast<T>(element(i)));
        } else {
          set_raw(first + i, from_float<T>(static_cast<float>(element(i))));
        }
      }
    });
  }
  double at(std::int64_t i) const {
    double value = 0;
    read(i, 1, &value);
    return value;
  }
  void set(std::int64_t i, double v) {
    write(i, 1, [v](std::int64_t) { return v; });
  }
  std::vector<double> values() const {
    std::vector<double> out(static_cast<std::size_t>(size()));
    read(0, size(), out.data());
    return out;
  }
  ir::Type type() const { return {dtype, ir::Shape(dims.begin(), dims.end())}; }
  TensorView view(DeviceAddress data) const {
    TensorView v{.data = data, .dtype = dtype, .rank = static_cast<std::int32_t>(dims.size()), .dims = {}};
    std::copy(dims.begin(), dims.end(), v.dims.begin());
    return v;
  }
};

// Returns a tensor in which every byte is 0xff. All elements are NaN in floating-point types and -1 in signed integer
// types.
inline HostTensor poisoned_tensor(ir::DType dtype, std::vector<std::int64_t> dims) {
  std::size_t n = 1;
  for (const std::int64_t d : dims) n *= static_cast<std::size_t>(d);
  return {dtype, std::move(dims), std::vector<std::byte>(n * ir::dtype_size(dtype), std::byte{0xff})};
}
inline HostTensor filled_tensor(ir::DType dtype, std::vector<std::int64_t> dims, double value) {
  HostTensor t = poisoned_tensor(dtype, std::move(dims));
  t.write(0, t.size(), [value](std::int64_t) { return value; });
  return t;
}
inline HostTensor make_tensor(ir::DType dtype, std::vector<std::int64_t> dims, std::span<const double> values) {
  HostTensor t = poisoned_tensor(dtype, std::move(dims));
  EXPECT_EQ(t.size(), static_cast<std::int64_t>(values.size()));
  t.write(0, t.size(), [values](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  return t;
}
inline HostTensor int_tensor(std::vector<std::int64_t> dims, const std::vector<std::int32_t>& values) {
  return make_tensor(ir::DType::kInt32, std::move(dims), std::vector<double>(values.begin(), values.end()));
}
// Returns a tensor of values uniform in [low, high), rounded to the dtype.
inline HostTensor random_tensor(ir::DType dtype, std::vector<std::int64_t> dims, std::uint32_t seed, double low = -1,
                                double high = 1) {
  HostTensor t = poisoned_tensor(dtype, std::move(dims));
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  t.write(0, t.size(), [&](std::int64_t) { return uniform(generator); });
  return t;
}

// Uses memcmp, which is faster than operator== of vectors, because operator== compares one std::byte at a time.
inline bool same_bits(const HostTensor& a, const HostTensor& b) {
  return a.bytes.size() == b.bytes.size() &&
         (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
}

// Returns the sum of a[i] · b[i]. Reference computations spend most of their time in this function.
TESSERA_CPU_CLONES inline double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
// Adds factor · x[i] to y[i].
TESSERA_CPU_CLONES inline void add_scaled(double factor, const double* x, double* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// A value is accepted if |actual - expected| <= absolute + relative · |expected|.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};
// Returns `scale` times the tolerance for float32 arithmetic followed by one rounding to the dtype.
inline Tolerance tolerance(ir::DType dtype, double scale = 1) {
  switch (dtype) {
    case ir::DType::kBFloat16: return {1e-5 * scale, 4.0e-3 * scale};
    case ir::DType::kFloat16: return {1e-5 * scale, 5.0e-4 * scale};
    case ir::DType::kFloat8E4M3: return {1e-3 * scale, 6.25e-2 * scale};
    default: return {1e-6 * scale, 2e-6 * scale};
  }
}

// Compares every element and prints the greatest difference. NaN equals NaN, and an infinity equals an infinity of the
// same sign.
inline void expect_close(const HostTensor& actual, std::span<const double> expected, Tolerance allowed,
                         const std::string& what) {
  ASSERT_EQ(actual.size(), static_cast<std::int64_t>(expected.size())) << what;
  double greatest = 0;
  int failures = 0;
  for (std::int64_t i = 0; i < actual.size(); ++i) {
    const double a = actual.at(i);
    const double e = expected[static_cast<std::size_t>(i)];
    if ((std::isnan(a) && std::isnan(e)) || a == e) continue;
    const double difference = std::abs(a - e);
    if (difference > greatest) greatest = difference;
    if (difference <= allowed.absolute + allowed.relative * std::abs(e)) continue;
    if (++failures <= 3) ADD_FAILURE() << what << ": element " << i << " is " << a << ", expected " << e;
  }
  EXPECT_EQ(failures, 0) << what << ": elements too far from the reference, of " << actual.size();
  std::printf("  %-56s %-4s greatest difference %.3g\n", what.c_str(),
              std::string(ir::dtype_name(actual.dtype)).c_str(), greatest);
}

}  // namespace tessera::testing
