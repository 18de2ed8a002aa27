#include "tessera/model/weights/stored_tensor.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

namespace tessera {

std::int64_t StoredTensor::num_elements() const {
  if (made == nullptr) return static_cast<std::int64_t>(data.size()) / stored_dtype_bytes(dtype);
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<std::int64_t> tensor_bytes(std::span<const std::int64_t> shape, StoredDtype dtype) {
  std::int64_t bytes = stored_dtype_bytes(dtype);
  for (std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

Status expect_all_elements(const StoredTensor& tensor) {
  if (tensor.made != nullptr ||
      tensor_bytes(tensor.shape, tensor.dtype) == static_cast<std::int64_t>(tensor.data.size()))
    return ok_status();
  return invalid_argument(fmt::format("tensor \"{}\" has {} bytes; accepted: what {} and shape {} need", tensor.name,
                                      tensor.data.size(), stored_dtype_name(tensor.dtype), shape_text(tensor.shape)));
}

}  // namespace tessera
