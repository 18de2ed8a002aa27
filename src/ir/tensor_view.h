// A TensorView describes the device memory of a graph's value. Kernels, and exchanges between ranks, read and write
// this memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tessera/device/device.h"
#include "tessera/ir/type.h"

namespace tessera {

inline constexpr int kMaxRank = 5;

// A value in device memory, row-major and contiguous. It is trivially copyable, so kernels can capture it.
struct TensorView {
  DeviceAddress data = {};
  ir::DType dtype = ir::DType::kFloat32;
  std::int32_t rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};
  bool is_weight = false;  // no kernel writes a weight, so a kernel may read it before earlier kernels end

  std::int64_t dim(int i) const { return dims[static_cast<std::size_t>(i)]; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim(i);
    return n;
  }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(ir::dtype_size(dtype)); }
  // rows() and cols() return the numbers of rows and columns if the tensor is seen as a matrix. The number of rows is
  // the product of all dimensions except the last.
  std::int64_t rows() const { return rank == 0 || dim(rank - 1) == 0 ? 0 : elements() / dim(rank - 1); }
  std::int64_t cols() const { return rank == 0 ? 1 : dim(rank - 1); }
  // Returns the address as a pointer. Valid only on devices whose addresses are pointers.
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data.raw());
  }
};

}  // namespace tessera
