#include "tessera/runner/verify/find_nan.h"

#include <cmath>
#include <cstring>

#include "tessera/base/float16.h"

namespace tessera {
namespace {

template <class T>
std::int64_t find(std::span<const std::byte> bytes, std::int64_t cols, std::int64_t ignored_col) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    const auto index = static_cast<std::int64_t>(at / sizeof(T));
    if (std::isnan(to_float(value)) && index % cols != ignored_col) return index;
  }
  return -1;
}

}  // namespace

std::int64_t find_nan(std::span<const std::byte> bytes, ir::DType dtype, std::int64_t cols, std::int64_t ignored_col) {
  switch (dtype) {
    case ir::DType::kFloat32: return find<float>(bytes, cols, ignored_col);
    case ir::DType::kBFloat16: return find<BFloat16>(bytes, cols, ignored_col);
    case ir::DType::kFloat16: return find<Float16>(bytes, cols, ignored_col);
    default: return -1;
  }
}

}  // namespace tessera
