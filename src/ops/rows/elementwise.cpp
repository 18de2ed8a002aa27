#include "tessera/ops/rows/elementwise.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_binary(const ir::OpSignature& s) {
  const ir::Type& a = s.operands[0];
  const ir::Type& b = s.operands[1];
  TRY(expect_floating(s, 0, "a"));
  const bool row = !a.shape.empty() && b.dtype == a.dtype && b.shape == ir::Shape{a.shape.back()};
  const bool one = b.dtype == a.dtype && b.shape == ir::Shape{1};
  if (a != b && !row && !one)
    return refuse(
        s, fmt::format("b is {}; it must be as a, {}, or one row or one element of it", b.to_string(), a.to_string()));
  return std::vector{a};
}

Result<std::vector<ir::Type>> infer_scale(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "x"));
  if (const double factor = s.node.attribute_or("factor", 1.0); !std::isfinite(factor))
    return refuse(s, fmt::format("factor = {}; it must be finite", factor));
  return std::vector{s.operands[0]};
}

Result<std::vector<ir::Type>> infer_copy(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }

Result<std::vector<ir::Type>> infer_cast(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "x"));
  const std::string name = string_attribute(s.node, "dtype", "f32");
  const std::optional<ir::DType> dtype = ir::parse_dtype(name);
  if (!dtype || !ir::is_floating_point(*dtype))
    return refuse(s, fmt::format("dtype = \"{}\"; it must be f32, bf16 or f16", name));
  return std::vector{ir::Type{*dtype, s.operands[0].shape}};
}

struct Add {
  TESSERA_INLINE float operator()(float a, float b) const { return a + b; }
};
struct Mul {
  TESSERA_INLINE float operator()(float a, float b) const { return a * b; }
};

// Computes y = f(a, b) with one row b, which is used for every row of a.
template <class T, class F>
TESSERA_CPU_CLONES void binary_rows(const T* a, const T* b, T* y, std::int64_t rows, std::int64_t n, F f) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* ar = a + r * n;
    T* yr = y + r * n;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) yr[i] = from_float<T>(f(to_float(ar[i]), to_float(b[i])));
  }
}

// Computes y = f(a, b) with one element b, which is used for every element of a.
template <class T, class F>
TESSERA_CPU_CLONES void binary_with_one(const T* a, const T* b, T* y, std::int64_t n, F f) {
  const float one = to_float(*b);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<T>(f(to_float(a[i]), one));
}

template <class From, class To>
TESSERA_CPU_CLONES void scale_run(const From* x, To* y, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<To>(to_float(x[i]) * factor);
}

template <class From, class To>
TESSERA_CPU_CLONES void cast_run(const From* x, To* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = from_float<To>(to_float(x[i]));
}

// Binds y = f(a, b). `name` is a string literal, because launches keep the pointer.
template <class F>
Result<std::unique_ptr<BoundOp>> bind_binary(const BindArgs& args, const char* name, F f) {
  return dispatch_dtype(args.operands[0].dtype, name, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* a = args.operands[0].as<T>();
    const T* b = args.operands[1].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t elements = args.operands[0].elements();
    const std::int64_t n = args.operands[1].elements();
    if (n == elements) {
      return make_cpu_op(name, [=] {
        parallel_rows(elements, 3 * sizeof(T), [&](std::int64_t begin, std::int64_t end) {
          binary_rows(a + begin, b + begin, y + begin, 1, end - begin, f);
        });
      });
    }
    if (n == 1) {
      return make_cpu_op(name, [=] {
        parallel_rows(elements, 2 * sizeof(T), [&](std::int64_t begin, std::int64_t end) {
          binary_with_one(a + begin, b, y + begin, end - begin, f);
        });
      });
    }
    const std::int64_t rows = args.operands[0].rows();
    return make_cpu_op(name, [=] {
      parallel_rows(rows, 2 * n * static_cast<std::int64_t>(sizeof(T)), [&](std::int64_t begin, std::int64_t end) {
        binary_rows(a + begin * n, b, y + begin * n, end - begin, n, f);
      });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_add(const BindArgs& args) { return bind_binary(args, "add", Add{}); }
Result<std::unique_ptr<BoundOp>> bind_mul(const BindArgs& args) { return bind_binary(args, "mul", Mul{}); }

Result<std::unique_ptr<BoundOp>> bind_scale(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "scale", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const T* x = args.operands[0].as<T>();
    T* y = args.results[0].as<T>();
    const std::int64_t n = args.operands[0].elements();
    const float factor = static_cast<float>(args.node.attribute_or("factor", 1.0));
    return make_cpu_op("scale", [=] {
      parallel_rows(n, 2 * sizeof(T), [&](std::int64_t begin, std::int64_t end) {
        scale_run(x + begin, y + begin, end - begin, factor);
      });
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_copy(const BindArgs& args) {
  const std::byte* x = args.operands[0].data.raw();
  std::byte* y = args.results[0].data.raw();
  const std::int64_t bytes = args.operands[0].bytes();
  return make_cpu_op("copy", [=] {
    parallel_rows(bytes, 2, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(y + begin, x + begin, static_cast<std::size_t>(end - begin));
    });
  });
}

Result<std::unique_ptr<BoundOp>> bind_cast(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "cast", [&]<class From>() -> Result<std::unique_ptr<BoundOp>> {
    return dispatch_dtype(args.results[0].dtype, "cast", [&]<class To>() -> Result<std::unique_ptr<BoundOp>> {
      const From* x = args.operands[0].as<From>();
      To* y = args.results[0].as<To>();
      const std::int64_t n = args.operands[0].elements();
      return make_cpu_op("cast", [=] {
        parallel_rows(n, sizeof(From) + sizeof(To),
                      [&](std::int64_t begin, std::int64_t end) { cast_run(x + begin, y + begin, end - begin); });
      });
    });
  });
}

}  // namespace

const ir::OpDecl kAdd{
    .name = "add",
    .summary = "a + b: [*, D], [*, D], [D] or [1] -> [*, D]",
    .operands = {{"a"}, {"b"}},
    .attributes = {},
    .infer = infer_binary,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kMul{
    .name = "mul",
    .summary = "a * b: [*, D], [*, D], [D] or [1] -> [*, D]",
    .operands = {{"a"}, {"b"}},
    .attributes = {},
    .infer = infer_binary,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kScale{
    .name = "scale",
    .summary = "x * factor: [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {{"factor", ir::AttributeKind::kDouble, true}},
    .infer = infer_scale,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kCopy{
    .name = "copy",
    .summary = "x in memory of its own: [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_copy,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kCast{
    .name = "cast",
    .summary = "x rounded to the floating-point dtype: [*] -> [*]",
    .operands = {{"x"}},
    .attributes = {{"dtype", ir::AttributeKind::kString}},
    .infer = infer_cast,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kAddCpu{.op = "add", .name = "cpu", .bind = bind_add};

const KernelDef kMulCpu{.op = "mul", .name = "cpu", .bind = bind_mul};

const KernelDef kScaleCpu{.op = "scale", .name = "cpu", .bind = bind_scale};

const KernelDef kCopyCpu{.op = "copy", .name = "cpu", .bind = bind_copy};

const KernelDef kCastCpu{.op = "cast", .name = "cpu", .bind = bind_cast};

}  // namespace tessera
