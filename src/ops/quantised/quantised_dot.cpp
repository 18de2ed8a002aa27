// The dot kernel of quantised_linear on the CPU. Values of all types of up to eight bits are exact in bfloat16. The
// kernel therefore converts them to pairs of bfloat16 numbers, multiplies these with x (by AVX-512's dot product of
// pairs if x is bfloat16 too), and applies the scales to the sums of groups.
#include "tessera/ops/quantised/quantised_dot.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_vector.h"
#include "tessera/ops/quantised/small_floats.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_QUANTISED_DOT
#endif

namespace tessera {

#ifdef TESSERA_QUANTISED_DOT

#define TESSERA_V4 __attribute__((target("arch=x86-64-v4")))

namespace {

using Values = QuantisedFormat::Values;

constexpr std::int64_t kStep = 32;  // number of values that are converted at once
static_assert(kStep == 2 * kNvfp4Group);

typedef std::uint16_t VecPairs __attribute__((vector_size(64)));  // 32 bfloat16 numbers, in order

// Converts 32 bytes to 16-bit numbers. The instructions are inline assembly for two reasons: g++ 12 widens vectors of
// bytes one element at a time, and the intrinsics cannot be used in functions that are compiled for several instruction
// sets.
TESSERA_INLINE VecPairs widen_bytes(const std::uint8_t* p) {
  VecPairs wide;
  asm("vpmovzxbw %1, %0" : "=v"(wide) : "m"(*reinterpret_cast<const std::uint8_t(*)[32]>(p)));
  return wide;
}
// Returns the 32 four-bit halves of 16 bytes as 16-bit numbers. The lower half of a byte comes before the upper half.
TESSERA_INLINE VecPairs widen_halves(const std::uint8_t* p) {
  VecU16 wide;
  asm("vpmovzxbd %1, %0" : "=v"(wide) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p)));
  return reinterpret_cast<VecPairs>((wide & 15u) | (wide & 0xf0u) << 12);
}

TESSERA_INLINE VecPairs splat(std::uint16_t value) { return VecPairs{} + value; }

// The bfloat16 numbers −16 … 15 in ascending order: element i is i − 16.
constexpr VecPairs kIntegers{0xc180, 0xc170, 0xc160, 0xc150, 0xc140, 0xc130, 0xc120, 0xc110, 0xc100, 0xc0e0, 0xc0c0,
                             0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
                             0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
// The numbers of e2m1 in bfloat16, indexed by code. The 16 numbers occur twice, because the vector has 32 elements.
constexpr VecPairs kE2M1{0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
                         0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
                         0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
// The subnormal numbers of e4m3 in bfloat16, indexed by the lowest three bits of a code. If these bits are m, the
// number is m / 512.
constexpr VecPairs kSubnormal{0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x0000, 0x3b00, 0x3b80,
                              0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20,
                              0x3c40, 0x3c60, 0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};

TESSERA_INLINE VecPairs of_e4m3_codes(const std::uint8_t* p) {
  const VecPairs v = widen_bytes(p);
  const VecPairs magnitude = v & 0x7f;
  // Changes the exponent's bias from 7 to 127.
  VecPairs value = (magnitude << 4) + static_cast<std::uint16_t>(120 << 7);
  value = (v & 0x78) == 0 ? __builtin_shuffle(kSubnormal, v) : value;
  value = magnitude == 0x7f ? splat(0x7fc0) : value;
  return value | (v & 0x80) << 8;
}

TESSERA_INLINE VecPairs of_int8_codes(const std::uint8_t* p) {
  VecI16 low;
  VecI16 high;
  asm("vpmovsxbd %1, %0" : "=v"(low) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p)));
  asm("vpmovsxbd %1, %0" : "=v"(high) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p + 16)));
  const auto first = reinterpret_cast<VecPairs>(__builtin_convertvector(low, Vec16));
  const auto second = reinterpret_cast<VecPairs>(__builtin_convertvector(high, Vec16));
  // Takes the upper halves of the float32 numbers. The lower halves are zero, so nothing is rounded.
  const VecPairs upper{1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return __builtin_shuffle(first, second, upper);
}

// Converts the values [at, at + 32) of a row.
template <Values kValues>
TESSERA_INLINE VecPairs convert_step(const std::uint8_t* row, std::int64_t at, VecPairs const& zero) {
  if constexpr (kValues == Values::kE4M3) return of_e4m3_codes(row + at);
  if constexpr (kValues == Values::kInt8) return of_int8_codes(row + at);
  if constexpr (kValues == Values::kInt4) return __builtin_shuffle(kIntegers, widen_halves(row + at / 2) - zero);
  if constexpr (kValues == Values::kE2M1) return __builtin_shuffle(kE2M1, widen_halves(row + at / 2));
}

// Adds the products of w and x, where x is bfloat16. One instruction multiplies pairs of numbers.
struct PairProducts {
  using X = BFloat16;
  static TESSERA_INLINE void add(const BFloat16* x, VecPairs const& w, Vec16& sum) {
    VecPairs values;
    std::memcpy(&values, x, sizeof(values));
    Vec16 held = sum;
    asm("vdpbf16ps %1, %2, %0" : "+v"(held) : "v"(w), "v"(values));
    sum = held;
  }
};

// Adds the products of w and x, where x is float32. In each step of 32 values, x has the 16 values with even indices
// before the 16 values with odd indices.
struct FloatProducts {
  using X = float;
  static TESSERA_INLINE void add(const float* x, VecPairs const& w, Vec16& sum) {
    const auto pairs = reinterpret_cast<VecU16>(w);
    sum += load16(x) * reinterpret_cast<Vec16>(pairs << 16);
    sum += load16(x + kVecFloats) * reinterpret_cast<Vec16>(pairs & 0xffff0000u);
  }
};

TESSERA_INLINE VecPairs zero_of(const QuantisedMatrix& m, std::int64_t row, std::int64_t group) {
  const std::uint32_t zero = m.zeros != nullptr ? m.zeros[row * m.num_groups + group] : 8;
  return splat(static_cast<std::uint16_t>(zero - 16));  // kIntegers begins with −16
}

// Returns the number of columns of y that are computed at once for `rows` rows of x. The total sums of these columns,
// the sums of the current group and x fit in the registers.
constexpr int columns_of(int rows) { return rows == 1 ? 4 : rows <= 4 ? 2 : 1; }

// Adds the products of kColumns columns of y to `total`. A group of w consists of whole steps of kStep values.
template <class Products, Values kValues, int kRows, int kColumns>
TESSERA_INLINE void add_groups(const QuantisedMatrix& m, const typename Products::X* x, std::int64_t column,
                               Vec16 (&total)[kRows][kColumns]) {
  const std::uint8_t* row[kColumns];
  std::int64_t scale_row[kColumns];
  for (int c = 0; c < kColumns; ++c) {
    row[c] = m.values + (column + c) * m.row_bytes();
    scale_row[c] = (column + c) / m.format.group_rows * m.num_groups;
  }
  for (std::int64_t group = 0; group < m.num_groups; ++group) {
    const std::int64_t begin = group * m.format.group_cols;
    const std::int64_t end = std::min(m.cols, begin + m.format.group_cols);
    VecPairs zero[kColumns];
    if constexpr (kValues == Values::kInt4)
      for (int c = 0; c < kColumns; ++c) zero[c] = zero_of(m, column + c, group);
    Vec16 sum[kRows][kColumns] = {};
    for (std::int64_t at = begin; at < end; at += kStep) {
      VecPairs w[kColumns];
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) w[c] = convert_step<kValues>(row[c], at, zero[c]);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) Products::add(x + r * m.cols + at, w[c], sum[r][c]);
    }
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const Vec16 scale = splat16(stored_scale(m, scale_row[c] + group));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) total[r][c] += sum[r][c] * scale;
    }
  }
}

// Adds the products of kColumns columns of y to `total`. A group of w has kStep / 2 values. The first eight lanes of a
// step's products belong to one group, and the other eight lanes to the next group.
template <class Products, Values kValues, int kRows, int kColumns>
TESSERA_INLINE void add_small_groups(const QuantisedMatrix& m, const typename Products::X* x, std::int64_t column,
                                     Vec16 (&total)[kRows][kColumns]) {
  for (std::int64_t at = 0; at < m.cols; at += kStep) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const std::int64_t of_row = column + c;
      const std::int64_t scale = of_row / m.format.group_rows * m.num_groups + at / kNvfp4Group;
      const Vec16 first = splat16(stored_scale(m, scale));
      const Vec16 second = splat16(stored_scale(m, scale + 1));
      const VecI16 halves{0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16};
      const Vec16 scales = __builtin_shuffle(first, second, halves);
      const VecPairs w = convert_step<kValues>(m.values + of_row * m.row_bytes(), at, VecPairs{});
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        Vec16 sum = {};
        Products::add(x + r * m.cols + at, w, sum);
        total[r][c] += sum * scales;
      }
    }
  }
}

template <class Products, Values kValues, int kRows, int kColumns>
TESSERA_INLINE void multiply_columns(const QuantisedMatrix& m, const typename Products::X* x, std::int64_t column,
                                     float* sums, std::int64_t stride) {
  Vec16 total[kRows][kColumns] = {};
  if (m.format.group_cols == kNvfp4Group) {
    add_small_groups<Products, kValues, kRows, kColumns>(m, x, column, total);
  } else {
    add_groups<Products, kValues, kRows, kColumns>(m, x, column, total);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const float sum = sum16(total[r][c]);
      sums[r * stride + c] = m.factor != nullptr ? sum * m.factor[column + c] : sum;
    }
}

template <class Products, Values kValues, int kRows>
TESSERA_V4 void multiply_rows(const QuantisedMatrix& m, const typename Products::X* x, std::int64_t first,
                              std::int64_t count, float* sums) {
  constexpr int kColumns = columns_of(kRows);
  std::int64_t c = 0;
  for (; c + kColumns <= count; c += kColumns)
    multiply_columns<Products, kValues, kRows, kColumns>(m, x, first + c, sums + c, count);
  for (; c < count; ++c) multiply_columns<Products, kValues, kRows, 1>(m, x, first + c, sums + c, count);
}

template <class Products, Values kValues>
void multiply(const QuantisedMatrix& m, const typename Products::X* x, std::int64_t rows, std::int64_t first,
              std::int64_t count, float* sums) {
  for (; rows >= 8; rows -= 8, x += 8 * m.cols, sums += 8 * count)
    multiply_rows<Products, kValues, 8>(m, x, first, count, sums);
  if (rows >= 4) {
    multiply_rows<Products, kValues, 4>(m, x, first, count, sums);
    rows -= 4, x += 4 * m.cols, sums += 4 * count;
  }
  if (rows >= 2) {
    multiply_rows<Products, kValues, 2>(m, x, first, count, sums);
    rows -= 2, x += 2 * m.cols, sums += 2 * count;
  }
  if (rows == 1) multiply_rows<Products, kValues, 1>(m, x, first, count, sums);
}

template <class Products>
void multiply_values(const QuantisedMatrix& m, const std::byte* x, std::int64_t rows, std::int64_t first,
                     std::int64_t count, float* sums) {
  const auto* values = reinterpret_cast<const typename Products::X*>(x);
  switch (m.format.values) {
    case Values::kE4M3: return multiply<Products, Values::kE4M3>(m, values, rows, first, count, sums);
    case Values::kInt8: return multiply<Products, Values::kInt8>(m, values, rows, first, count, sums);
    case Values::kInt4: return multiply<Products, Values::kInt4>(m, values, rows, first, count, sums);
    case Values::kE2M1: return multiply<Products, Values::kE2M1>(m, values, rows, first, count, sums);
    case Values::kBlocks: return;  // this kernel does not support GGUF's blocks
  }
}

// Converts x to float. In each step, puts the values with even indices before those with odd indices.
template <class T>
void split_steps(const T* x, std::int64_t values, float* to) {
  for (std::int64_t step = 0; step < values; step += kStep)
    for (std::int64_t i = 0; i < kVecFloats; ++i) {
      to[step + i] = to_float(x[step + 2 * i]);
      to[step + kVecFloats + i] = to_float(x[step + 2 * i + 1]);
    }
}

}  // namespace

bool quantised_dot_takes(const QuantisedMatrix& m, ir::DType dtype) {
  static const bool vectors = __builtin_cpu_supports("x86-64-v4") != 0;
  static const bool pairs = vectors && __builtin_cpu_supports("avx512bf16") != 0;
  const std::int64_t group = m.format.group_cols;
  const bool small = group == kNvfp4Group && m.format.values != Values::kInt4;
  const bool groups = small || group % kStep == 0 || group >= m.cols;
  if (m.format.is_blocks() || m.format.scales == QuantisedFormat::Scales::kPairs) return false;
  return (dtype == ir::DType::kBFloat16 ? pairs : vectors) && m.cols % kStep == 0 && groups && m.groups == nullptr;
}

std::size_t quantised_dot_x_bytes(std::int64_t rows, std::int64_t cols, ir::DType dtype) {
  return dtype == ir::DType::kBFloat16 ? 0 : static_cast<std::size_t>(rows * cols) * sizeof(float);
}

void quantised_dot_prepare(const std::byte* x, std::int64_t rows, std::int64_t cols, ir::DType dtype, std::byte* to) {
  auto* floats = reinterpret_cast<float*>(to);
  if (dtype == ir::DType::kFloat32) split_steps(reinterpret_cast<const float*>(x), rows * cols, floats);
  if (dtype == ir::DType::kFloat16) split_steps(reinterpret_cast<const Float16*>(x), rows * cols, floats);
}

void quantised_dot(const QuantisedMatrix& m, const std::byte* x, std::int64_t rows, ir::DType dtype, std::int64_t first,
                   std::int64_t count, float* sums) {
  if (dtype == ir::DType::kBFloat16) return multiply_values<PairProducts>(m, x, rows, first, count, sums);
  multiply_values<FloatProducts>(m, x, rows, first, count, sums);
}

#else

bool quantised_dot_takes(const QuantisedMatrix&, ir::DType) { return false; }
std::size_t quantised_dot_x_bytes(std::int64_t, std::int64_t, ir::DType) { return 0; }
void quantised_dot_prepare(const std::byte*, std::int64_t, std::int64_t, ir::DType, std::byte*) {}
void quantised_dot(const QuantisedMatrix&, const std::byte*, std::int64_t, ir::DType, std::int64_t, std::int64_t,
                   float*) {}

#endif

}  // namespace tessera
