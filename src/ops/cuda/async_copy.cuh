// Asynchronous copies to shared memory, and loads and packing of fragments for tensor-core products.
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

// Copies 16 bytes; both addresses are aligned to 16 bytes. If `real` is false, writes zeros and does not read `from`.
__device__ inline void copy_async(void* to, const void* from, bool real) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(real ? 16 : 0)
               : "memory");
}
// Copies kBytes bytes, 4 or 16, to an address in shared memory. Both addresses are aligned to kBytes.
template <int kBytes>
__device__ inline void copy_async(std::uint32_t to, const void* from) {
  static_assert(kBytes == 4 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
  }
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of this thread's groups of copies are still in flight.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rows of 16-byte packs in shared memory, swizzled: a pack's column is XORed with the low three bits of its row number.
// So the packs that eight successive rows have in one column lie in different banks.
template <class T, int kRows, int kPacks>
struct PermutedRows {
  static_assert(kPacks % 8 == 0);
  Pack<T, kPackSize<T>> at[kRows * kPacks];
  __device__ Pack<T, kPackSize<T>>* pack(int row, int column) { return at + row * kPacks + (column ^ (row & 7)); }
};

// Loads four 8 x 8 matrices of 16-bit elements in the layout of mma.m16n8k16. Lane 8i + j passes the address of row j
// of matrix i.
template <bool kTransposed>
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
}

// Stores four 8 x 8 matrices of 16-bit elements to rows of shared memory. Lane 8i + j passes the address of row j of
// matrix i.
template <bool kTransposed>
__device__ inline void store_matrices(std::uint32_t row, const std::uint32_t (&from)[4]) {
  if constexpr (kTransposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
  }
}

// Two numbers rounded to T, and their two rounding errors, which are rounded to T too. Each member packs two elements.
struct SplitPair {
  std::uint32_t rounded;
  std::uint32_t rest;
};
// Splits two numbers. A rounded number plus its rounding error has at least 16 bits of precision, unless T is float16
// and the number's magnitude is 2^-9 or less. Precondition: neither number exceeds T's range.
template <class T>
__device__ inline SplitPair split_two(float low, float high) {
  const std::uint32_t rounded = pack_two<T>(low, high);
  const float2 values = unpack_two<T>(rounded);
  return {rounded, pack_two<T>(low - values.x, high - values.y)};
}

}  // namespace tessera::cuda
