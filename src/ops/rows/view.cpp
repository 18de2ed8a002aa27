#include "tessera/ops/rows/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<ir::Shape> shape_attribute(const ir::OpSignature& s) {
  const std::string text = string_attribute(s.node, "shape", "");
  Result<ir::Shape> shape = parse_shape(text);
  if (!shape.ok()) return refuse(s, fmt::format("shape = \"{}\": {}", text, shape.status().message()));
  return shape;
}

// A number of elements: the product of the constant dimensions, and the list of the symbolic dimensions.
struct Count {
  std::int64_t constant = 1;
  std::vector<ir::Dim> symbolic;
};

Count count_of(const ir::Shape& shape) {
  Count count;
  for (const ir::Dim& dim : shape) {
    if (const std::optional<std::int64_t> number = dim.constant())
      count.constant *= *number;
    else
      count.symbolic.push_back(dim);
  }
  return count;
}

// Returns whether both shapes have the same number of elements for every value of their symbols. Symbolic dimensions
// that occur in both shapes are paired. If a shape then has more than one symbolic dimension without a partner, the
// function returns false.
bool same_count(const ir::Shape& from, const ir::Shape& to) {
  Count a = count_of(from);
  Count b = count_of(to);
  std::erase_if(a.symbolic, [&](const ir::Dim& dim) {
    const auto twin = std::find(b.symbolic.begin(), b.symbolic.end(), dim);
    if (twin == b.symbolic.end()) return false;
    b.symbolic.erase(twin);
    return true;
  });
  if (a.symbolic.size() != b.symbolic.size() || a.symbolic.size() > 1) return false;
  if (a.symbolic.empty()) return a.constant == b.constant;
  return a.symbolic[0] * a.constant == b.symbolic[0] * b.constant;
}

Result<std::vector<ir::Type>> infer_reshape(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  ir::Shape shape = TRY(shape_attribute(s));
  const ir::Type to{x.dtype, std::move(shape)};
  if (!same_count(x.shape, to.shape))
    return refuse(s, fmt::format("{} and {} do not have the same number of elements for every bucket", x.to_string(),
                                 to.to_string()));
  return std::vector{to};
}

Result<std::vector<ir::Type>> infer_split(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_min_rank(s, 0, "x", 1));
  const std::int64_t cols = TRY(constant_cols(s, 0, "x"));
  const ir::Attribute* attribute = s.node.find_attribute("sizes");
  const auto* sizes = attribute ? std::get_if<std::vector<std::int64_t>>(attribute) : nullptr;
  if (!sizes || sizes->empty() || sizes->size() > kMaxSplits)
    return refuse(s, fmt::format("it takes 1 to {} sizes", kMaxSplits));
  std::vector<ir::Type> types;
  std::int64_t rest = cols;
  for (const std::int64_t size : *sizes) {
    if (size <= 0 || size > rest)
      return refuse(s, fmt::format("sizes {} do not divide the {} columns of x", fmt::join(*sizes, ", "), cols));
    rest -= size;
    types.push_back(x);
    types.back().shape.back() = size;
  }
  if (rest != 0)
    return refuse(s, fmt::format("sizes {} leave {} of the {} columns of x", fmt::join(*sizes, ", "), rest, cols));
  return types;
}

Result<std::vector<ir::Type>> infer_empty(const ir::OpSignature& s) {
  const std::string name = string_attribute(s.node, "dtype", "");
  const std::optional<ir::DType> dtype = ir::parse_dtype(name);
  if (!dtype) return refuse(s, fmt::format("dtype = \"{}\"; it must be f32, f16, bf16, i32, i64 or u8", name));
  ir::Shape shape = TRY(shape_attribute(s));
  return std::vector{ir::Type{*dtype, std::move(shape)}};
}

Result<std::vector<ir::Type>> infer_empty_like(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }

struct SplitPart {
  std::byte* data;
  std::int64_t row_bytes;
};

Result<std::unique_ptr<BoundOp>> bind_split(const BindArgs& args) {
  struct Kernel {
    const std::byte* x;
    std::int64_t rows;
    std::int64_t row_bytes;
    std::int64_t count;
    SplitPart parts[kMaxSplits];

    void operator()() const {
      parallel_rows(rows, 2 * row_bytes, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const std::byte* from = x + r * row_bytes;
          for (std::int64_t i = 0; i < count; ++i) {
            std::memcpy(parts[i].data + r * parts[i].row_bytes, from, static_cast<std::size_t>(parts[i].row_bytes));
            from += parts[i].row_bytes;
          }
        }
      });
    }
  };
  const TensorView& x = args.operands[0];
  const std::int64_t element = static_cast<std::int64_t>(ir::dtype_size(x.dtype));
  Kernel kernel{x.data.raw(), x.rows(), x.cols() * element, static_cast<std::int64_t>(args.results.size()), {}};
  for (std::size_t i = 0; i < args.results.size(); ++i)
    kernel.parts[i] = {args.results[i].data.raw(), args.results[i].cols() * element};
  return make_cpu_op("split", kernel);
}

}  // namespace

Result<ir::Shape> parse_shape(std::string_view text) {
  ir::Shape shape;
  if (text.find_first_not_of(' ') == std::string_view::npos) return shape;
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view dim = text.substr(0, comma);
    dim.remove_prefix(std::min(dim.find_first_not_of(' '), dim.size()));
    dim = dim.substr(0, dim.find_last_not_of(' ') + 1);
    shape.push_back(TRY(ir::Dim::parse(dim)));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  if (shape.size() > static_cast<std::size_t>(kMaxRank))
    return invalid_argument(fmt::format("{} dimensions; at most {} are possible", shape.size(), kMaxRank));
  return shape;
}

std::string shape_text(const ir::Shape& shape) {
  std::string text;
  for (const ir::Dim& dim : shape) text += (text.empty() ? "" : ", ") + dim.to_string();
  return text;
}

const ir::OpDecl kReshape{
    .name = "reshape",
    .summary = "the memory of x in another shape of as many elements",
    .operands = {{"x"}},
    .attributes = {{"shape", ir::AttributeKind::kString, true}},
    .infer = infer_reshape,
    .execution = ir::Execution::kView,
};

const ir::OpDecl kSplit{
    .name = "split",
    .summary = "copies of neighbouring column ranges: [*, N] -> [*, n1], [*, n2], ...",
    .operands = {{"x"}},
    .attributes = {{"sizes", ir::AttributeKind::kInts, true}},
    .infer = infer_split,
    .rows = ir::RowUse::kByRow,
};

const ir::OpDecl kEmpty{
    .name = "empty",
    .summary = "memory of that dtype and shape, to be written later",
    .operands = {},
    .attributes = {{"dtype", ir::AttributeKind::kString, true}, {"shape", ir::AttributeKind::kString, true}},
    .infer = infer_empty,
    .execution = ir::Execution::kAllocate,
};

const ir::OpDecl kEmptyLike{
    .name = "empty_like",
    .summary = "memory of the type of x, to be written later",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_empty_like,
    .execution = ir::Execution::kAllocate,
};

const KernelDef kSplitCpu{.op = "split", .name = "cpu", .bind = bind_split};

}  // namespace tessera
