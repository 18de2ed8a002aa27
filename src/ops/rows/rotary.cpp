#include "tessera/ops/rows/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/rows/rope_growth.h"
#include "tessera/ops/rows/rope_sections.h"

namespace tessera {
namespace {

Status check_sections(const ir::OpSignature& s, std::int64_t half) {
  const ir::Attribute* attribute = s.node.find_attribute("sections");
  const bool in_three = s.operands[0].shape.size() == 2;
  if (attribute == nullptr) {
    return in_three || s.node.find_attribute("interleaved") != nullptr
               ? refuse(s, "positions in three dimensions and their sections belong together")
               : ok_status();
  }
  const auto& sections = std::get<std::vector<std::int64_t>>(*attribute);
  const auto within = [&](std::int64_t count) { return count >= 0 && count <= half; };
  if (sections.size() != 3 || !std::ranges::all_of(sections, within) || sections[0] + sections[1] + sections[2] != half)
    return refuse(s, fmt::format("sections must be three numbers that add up to the {} pairs", half));
  return expect_type(s, 0, "positions", {ir::DType::kInt32, {3, s.operands[0].shape.back()}});
}

Status check_growth(const ir::OpSignature& s) {
  if (s.node.find_attribute("growth") == nullptr && s.node.find_attribute("growth_length") == nullptr)
    return ok_status();
  if (s.operands[0].shape.size() == 2) return refuse(s, "growth is for positions in one dimension");
  TRY(expect_positive(s, "growth"));
  if (s.node.attribute_or("growth_length", std::int64_t{0}) < 1)
    return refuse(s, "growth and a growth_length of 1 or more belong together");
  return ok_status();
}

Result<std::vector<ir::Type>> infer_rotary_table(const ir::OpSignature& s) {
  const ir::Type& positions = s.operands[0];
  const ir::Type& inv_freq = s.operands[1];
  if (positions.shape.size() != 2) TRY(expect_rank(s, 0, "positions", 1));
  TRY(expect_type(s, 0, "positions", {ir::DType::kInt32, positions.shape}));
  TRY(expect_rank(s, 1, "inv_freq", 1));
  TRY(expect_type(s, 1, "inv_freq", {ir::DType::kFloat32, inv_freq.shape}));
  const std::int64_t half = TRY(constant_cols(s, 1, "inv_freq"));
  if (s.node.find_attribute("scale")) TRY(expect_positive(s, "scale"));
  TRY(check_sections(s, half));
  TRY(check_growth(s));
  return std::vector{ir::Type{ir::DType::kFloat32, {positions.shape.back(), 2 * half}}};
}

Result<std::vector<ir::Type>> infer_rotary(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  const ir::Type& table = s.operands[1];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_rank(s, 1, "table", 2));
  TRY(expect_type(s, 1, "table", {ir::DType::kFloat32, {x.shape[0], table.shape[1]}}));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  const std::int64_t rotated = TRY(constant_cols(s, 1, "table"));
  const std::int64_t head_dim = s.node.attribute_or("head_dim", std::int64_t{0});
  if (head_dim <= 0 || cols % head_dim != 0)
    return refuse(s, fmt::format("head_dim = {} does not divide the {} columns of x", head_dim, cols));
  if (rotated % 2 != 0 || rotated > head_dim)
    return refuse(
        s, fmt::format("the table has {} columns; it must be even and at most head_dim = {}", rotated, head_dim));
  return std::vector{x};
}

struct SinCos {
  float sine;
  float cosine;
};

// Returns sine and cosine, exact to the last bit of float32. The arithmetic is in double, and vectorises. Precondition:
// |x| < 2^24.
TESSERA_INLINE SinCos sin_cos(float x) {
  // x = q·π/2 + r, where q is an integer and |r| <= π/4. Adding 1.5·2^52 leaves q in the low bits of the sum.
  const double magic = 6755399441055744.0;
  const double wide = static_cast<double>(x);
  const double shifted = wide * 0.63661977236758134308 + magic;
  const double q = shifted - magic;
  // Subtracts q·π/2 in two parts. The first part of π/2 has 33 bits, so that its product with q is exact for q up to
  // 2^20.
  double r = wide - q * 1.57079632673412561417;
  r = r - q * 6.07710050650619224932e-11;
  const double s = r * r;
  // These are Taylor series. The first omitted terms are below 3e-9 · r for the sine, and 2e-10 for the cosine.
  const double sine = r * (1.0 + s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880)))));
  const double cosine = 1.0 + s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320 - s * (1.0 / 3628800)))));
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted);
  const bool swap = (quadrant & 1) != 0;
  const double a = swap ? cosine : sine;
  const double b = swap ? sine : cosine;
  // For q mod 4 = 0, 1, 2 and 3, sin(x) is sin(r), cos(r), -sin(r) and -cos(r). In the same order, cos(x) is cos(r),
  // -sin(r), -cos(r) and sin(r).
  const double signed_a = (quadrant & 2) != 0 ? -a : a;
  const double signed_b = ((quadrant + 1) & 2) != 0 ? -b : b;
  return {static_cast<float>(signed_a), static_cast<float>(signed_b)};
}

TESSERA_CPU_CLONES void table_rows(const std::int32_t* positions, const float* inv_freq, float* table,
                                   std::int64_t rows, std::int64_t half, const RowScale& row_scale) {
  for (std::int64_t t = 0; t < rows; ++t) {
    const float position = static_cast<float>(positions[t]);
    const float scale = row_scale.at(positions[t]);
    float* cosines = table + t * 2 * half;
    float* sines = cosines + half;
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const SinCos value = sin_cos(position * inv_freq[i]);
      cosines[i] = value.cosine * scale;
      sines[i] = value.sine * scale;
    }
  }
}

// Computes rows begin … end - 1 of the table, which has `total` rows. `positions` is [3, total].
TESSERA_CPU_CLONES void section_rows(const std::int32_t* positions, std::int64_t total, const RopeSections& sections,
                                     const float* inv_freq, float* table, std::int64_t begin, std::int64_t end,
                                     std::int64_t half, float scale) {
  for (std::int64_t t = begin; t < end; ++t) {
    float* cosines = table + t * 2 * half;
    float* sines = cosines + half;
    for (std::int64_t i = 0; i < half; ++i) {
      const auto position = static_cast<float>(positions[sections.axis_of(i) * total + t]);
      const SinCos value = sin_cos(position * inv_freq[i]);
      cosines[i] = value.cosine * scale;
      sines[i] = value.sine * scale;
    }
  }
}

// Rotates the first 2·half values of each head of one token. The token has `heads` heads of `head_dim` values.
template <class T>
TESSERA_INLINE void rotate_token(const T* x, const float* cosines, T* y, std::int64_t heads, std::int64_t head_dim,
                                 std::int64_t half, bool interleaved) {
  const float* sines = cosines + half;
  for (std::int64_t h = 0; h < heads; ++h) {
    const T* from = x + h * head_dim;
    T* to = y + h * head_dim;
    if (interleaved) {
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = to_float(from[2 * i]);
        const float b = to_float(from[2 * i + 1]);
        to[2 * i] = from_float<T>(a * cosines[i] - b * sines[i]);
        to[2 * i + 1] = from_float<T>(b * cosines[i] + a * sines[i]);
      }
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = to_float(from[i]);
        const float b = to_float(from[i + half]);
        to[i] = from_float<T>(a * cosines[i] - b * sines[i]);
        to[i + half] = from_float<T>(b * cosines[i] + a * sines[i]);
      }
    }
    if (head_dim > 2 * half)
      std::memcpy(to + 2 * half, from + 2 * half, static_cast<std::size_t>(head_dim - 2 * half) * sizeof(T));
  }
}

template <class T>
TESSERA_CPU_CLONES void rotate_rows(const T* x, const float* table, T* y, std::int64_t rows, std::int64_t heads,
                                    std::int64_t head_dim, std::int64_t half, bool interleaved) {
  const std::int64_t cols = heads * head_dim;
  for (std::int64_t t = 0; t < rows; ++t)
    rotate_token(x + t * cols, table + t * 2 * half, y + t * cols, heads, head_dim, half, interleaved);
}

Result<std::unique_ptr<BoundOp>> bind_rotary_table(const BindArgs& args) {
  const std::int32_t* positions = args.operands[0].as<std::int32_t>();
  const float* inv_freq = args.operands[1].as<float>();
  float* table = args.results[0].as<float>();
  const std::int64_t rows = args.operands[0].cols();
  const std::int64_t half = args.operands[1].dim(0);
  const RowScale scale = row_scale(args.node);
  if (args.node.find_attribute("sections") != nullptr) {
    const RopeSections sections = rope_sections(args.node);
    return make_cpu_op("rotary_table", [=] {
      parallel_rows(rows, 8 * half * static_cast<std::int64_t>(sizeof(float)),
                    [&](std::int64_t begin, std::int64_t end) {
                      section_rows(positions, rows, sections, inv_freq, table, begin, end, half, scale.scale);
                    });
    });
  }
  return make_cpu_op("rotary_table", [=] {
    parallel_rows(rows, 8 * half * static_cast<std::int64_t>(sizeof(float)), [&](std::int64_t begin, std::int64_t end) {
      table_rows(positions + begin, inv_freq, table + begin * 2 * half, end - begin, half, scale);
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_rotary(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "rotary", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    const float* table = args.operands[1].as<float>();
    T* y = args.results[0].as<T>();
    const std::int64_t rows = args.operands[0].dim(0);
    const std::int64_t cols = args.operands[0].dim(1);
    const std::int64_t half = args.operands[1].dim(1) / 2;
    const std::int64_t head_dim = args.node.attribute_or("head_dim", std::int64_t{0});
    const bool interleaved = args.node.attribute_or("interleaved", false);
    return make_cpu_op("rotary", [=] {
      parallel_rows(rows, 2 * cols * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        rotate_rows(x + begin * cols, table + begin * 2 * half, y + begin * cols, end - begin, cols / head_dim,
                    head_dim, half, interleaved);
      });
    });
  });
}

}  // namespace

const ir::OpDecl kRotaryTable{
    .name = "rotary_table",
    .summary = "cos(p * f) * scale, then sin(p * f) * scale: i32[T] or i32[3, T], f32[Dr/2] -> f32[T, Dr]",
    .operands = {{"positions"}, {"inv_freq"}},
    .attributes = {{"scale", ir::AttributeKind::kDouble},
                   {"growth", ir::AttributeKind::kDouble},
                   {"growth_length", ir::AttributeKind::kInt},
                   {"sections", ir::AttributeKind::kInts},
                   {"interleaved", ir::AttributeKind::kBool}},
    .infer = infer_rotary_table,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kRotary{
    .name = "rotary",
    .summary = "rotates the first Dr of each head's D values by the table's angles: [T, H*D], f32[T, Dr] -> [T, H*D]",
    .operands = {{"x"}, {"table"}},
    .attributes = {{"head_dim", ir::AttributeKind::kInt, true}, {"interleaved", ir::AttributeKind::kBool}},
    .infer = infer_rotary,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kRotaryTableCpu{.op = "rotary_table", .name = "cpu", .bind = bind_rotary_table};

const KernelDef kRotaryCpu{.op = "rotary", .name = "cpu", .bind = bind_rotary};

}  // namespace tessera
