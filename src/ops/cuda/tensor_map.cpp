#include "tessera/ops/cuda/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>

namespace tessera {
namespace {

constexpr std::size_t kMostDimensions = 5;

// Finds the driver's function at run time, so that the driver need not be linked.
Result<PFN_cuTensorMapEncodeTiled_v12000> find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
    static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
    return internal_error("the CUDA driver has no cuTensorMapEncodeTiled; it needs one for CUDA 12.0 or newer");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

CUtensorMapSwizzle driver_swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone: return CU_TENSOR_MAP_SWIZZLE_NONE;
    case Swizzle::k64Bytes: return CU_TENSOR_MAP_SWIZZLE_64B;
    default: return CU_TENSOR_MAP_SWIZZLE_128B;
  }
}

}  // namespace

Result<CUtensorMap> encode_tensor_map(ir::DType dtype, const void* data, std::span<const TensorBox> dimensions,
                                      Swizzle swizzle) {
  if (dimensions.empty() || dimensions.size() > kMostDimensions)
    return internal_error(fmt::format("a tensor map of {} dimensions; it takes 1 to 5", dimensions.size()));
  if (dtype != ir::DType::kBFloat16 && dtype != ir::DType::kFloat16)
    return internal_error(fmt::format("a tensor map of {}; it takes bf16 and f16", ir::dtype_name(dtype)));
  const PFN_cuTensorMapEncodeTiled_v12000 encode = TRY(find_encode());
  std::array<cuuint64_t, kMostDimensions> sizes{};
  std::array<cuuint64_t, kMostDimensions> strides{};  // in bytes, from the second dimension on
  std::array<cuuint32_t, kMostDimensions> box{};
  std::array<cuuint32_t, kMostDimensions> steps{};
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    sizes[i] = static_cast<cuuint64_t>(dimensions[i].size);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(dimensions[i].stride) * ir::dtype_size(dtype);
    box[i] = static_cast<cuuint32_t>(dimensions[i].box);
    steps[i] = 1;
  }
  CUtensorMap map{};
  // The L2 promotion is 128 bytes, because with 256 bytes an H200 reads boxes of weights up to 7 % slower
  // (docs/measurements/kernels.md).
  const CUresult result =
      encode(&map, dtype == ir::DType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             static_cast<cuuint32_t>(dimensions.size()), const_cast<void*>(data), sizes.data(), strides.data(),
             box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(swizzle),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return internal_error(fmt::format("cuTensorMapEncodeTiled refuses a tensor of {} dimensions, {} by {} …: error {}",
                                      dimensions.size(), sizes[0], sizes[1], static_cast<int>(result)));
  return map;
}

Result<CUtensorMap> encode_row_groups(ir::DType dtype, const void* data, const RowGroups& weights, int box_rows,
                                      int box_columns, Swizzle swizzle) {
  const std::int64_t row = weights.columns;
  return encode_tensor_map(
      dtype, data,
      std::array{TensorBox{.size = row, .stride = 1, .box = box_columns}, TensorBox{.size = 8, .stride = row, .box = 8},
                 TensorBox{.size = 2, .stride = weights.second * row, .box = 2},
                 TensorBox{.size = weights.rows / 16, .stride = weights.first * row, .box = box_rows / 16},
                 TensorBox{.size = weights.matrices, .stride = weights.rows * row, .box = 1}},
      swizzle);
}

}  // namespace tessera
