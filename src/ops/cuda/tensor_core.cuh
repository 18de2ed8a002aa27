// One product on the tensor cores, and the transposition of 8 x 8 matrices for its operands.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

namespace tessera::cuda {

// Computes sum[16, 8] += a[16, 16] · b[16, 8], in the registers of a warp as PTX lays them out for mma.m16n8k16.
template <class T>
__device__ inline void multiply_tile(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Transposes an 8 x 8 matrix. Each lane passes two neighbouring elements of a row, as in the operands of
// multiply_tile(), and gets two neighbouring elements of the transposed matrix.
__device__ inline std::uint32_t transpose_matrix(std::uint32_t pair) {
  std::uint32_t transposed = 0;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

}  // namespace tessera::cuda
