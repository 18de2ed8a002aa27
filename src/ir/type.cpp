#include "tessera/ir/type.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace tessera::ir {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t size;
  bool floating_point;
};

constexpr std::array<DTypeInfo, 7> kDTypes = {{
    {DType::kFloat32, "f32", 4, true},
    {DType::kFloat16, "f16", 2, true},
    {DType::kBFloat16, "bf16", 2, true},
    {DType::kInt32, "i32", 4, false},
    {DType::kInt64, "i64", 8, false},
    {DType::kUInt8, "u8", 1, false},
    {DType::kFloat8E4M3, "f8e4m3", 1, false},
}};

const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

constexpr std::array<std::string_view, kNumSymbols> kSymbolNames = {"T", "B", "Q", "R", "S", "P", "P1", "P2", "P3"};

constexpr std::int64_t kMaxCount = std::int64_t{1} << 62;

// Returns the product of `sizes` and `unit`. The result is 0 if any size is 0, even if the product of the other sizes
// is too large.
Result<std::int64_t> product(const std::vector<std::int64_t>& sizes, std::int64_t unit) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  std::int64_t total = unit;
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(total, size, &total) || total > kMaxCount) {
      return invalid_argument(
          fmt::format("shape [{}] is too large: 2^62 elements and bytes are accepted", fmt::join(sizes, ", ")));
    }
  }
  return total;
}

}  // namespace

std::size_t dtype_size(DType dtype) { return info(dtype).size; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }
bool is_floating_point(DType dtype) { return info(dtype).floating_point; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& d : kDTypes) {
    if (d.name == name) return d.dtype;
  }
  return std::nullopt;
}

std::string_view symbol_name(Symbol symbol) { return kSymbolNames[static_cast<std::size_t>(symbol)]; }

std::optional<Symbol> parse_symbol(std::string_view name) {
  const auto at = std::find(kSymbolNames.begin(), kSymbolNames.end(), name);
  if (at == kSymbolNames.end()) return std::nullopt;
  return static_cast<Symbol>(at - kSymbolNames.begin());
}

Symbol page_symbol(std::size_t group) {
  assert(group < kMaxCacheGroups);
  return static_cast<Symbol>(static_cast<std::size_t>(Symbol::kPages) + group);
}

std::string Bucket::to_string() const {
  std::string text;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", kSymbolNames[i], sizes[i]);
  }
  return text.empty() ? "no sizes" : text;
}

std::string Type::to_string() const {
  std::string text(dtype_name(dtype));
  text += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i].to_string();
  }
  text += ']';
  return text;
}

Result<std::vector<std::int64_t>> evaluate(const Shape& shape, const Bucket& bucket) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(shape.size());
  for (const Dim& dim : shape) sizes.push_back(TRY(dim.evaluate(bucket)));
  TRY(product(sizes, 1));
  return sizes;
}

Result<std::int64_t> size_bytes(const Type& type, const Bucket& bucket) {
  const std::vector<std::int64_t> sizes = TRY(evaluate(type.shape, bucket));
  return product(sizes, static_cast<std::int64_t>(dtype_size(type.dtype)));
}

}  // namespace tessera::ir
