// Hopper's products of int8 with sums in int32 (wgmma.cuh explains how products are issued).
#pragma once

#include <cstdint>

#include "tessera/ops/cuda/wgmma.cuh"

namespace tessera::cuda {

// Computes sum[64, kN] = a[64, 32] · b[kN, 32]ᵀ, plus the old sum if `keep`. `a` is in registers. Each warp has the A
// operand layout of mma.m16n8k32: lane t has the columns 4 (t % 4) … + 3 of row t / 4 in a[0], and of row t / 4 + 8 in
// a[1]. a[2] and a[3] have the same two rows, but the columns 16 further on. Rows of b have 128 bytes. `b` is the lower
// word of its descriptor (matrix_word()). Adding kMatrixStep to the word selects the next 32 bytes. The sums have the
// accumulator layout of multiply() (wgmma.cuh).
#define TESSERA_EIGHT_INTEGERS(i)                                                                                     \
  "+r"(sum[(i)]), "+r"(sum[(i) + 1]), "+r"(sum[(i) + 2]), "+r"(sum[(i) + 3]), "+r"(sum[(i) + 4]), "+r"(sum[(i) + 5]), \
      "+r"(sum[(i) + 6]), "+r"(sum[(i) + 7])
#define TESSERA_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define TESSERA_NAMES_16 TESSERA_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define TESSERA_NAMES_32 TESSERA_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TESSERA_INT8_PRODUCT(N, NAMES, A, B, KEEP, UPPER, ...)                                                \
  asm volatile("{\n.reg .pred keep;\n.reg .b64 b;\nsetp.ne.b32 keep, " KEEP ", 0;\nmov.b64 b, {" B ", " UPPER \
               "};\n"                                                                                         \
               "wgmma.mma_async.sync.aligned.m64n" N "k32.s32.s8.s8 {" NAMES "}, {" A "}, b, keep;\n}"        \
               : __VA_ARGS__                                                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(keep), "n"(kMatrixUpperWord))
template <int kN>
__device__ inline void multiply_int8(std::uint32_t (&sum)[kN / 2], const std::uint32_t (&a)[4], std::uint32_t b,
                                     int keep) {
  static_assert(kN == 16 || kN == 32 || kN == 64, "these products are written down");
  if constexpr (kN == 16)
    TESSERA_INT8_PRODUCT("16", TESSERA_NAMES_8, "%8,%9,%10,%11", "%12", "%13", "%14", TESSERA_EIGHT_INTEGERS(0));
  if constexpr (kN == 32)
    TESSERA_INT8_PRODUCT("32", TESSERA_NAMES_16, "%16,%17,%18,%19", "%20", "%21", "%22", TESSERA_EIGHT_INTEGERS(0),
                         TESSERA_EIGHT_INTEGERS(8));
  if constexpr (kN == 64)
    TESSERA_INT8_PRODUCT("64", TESSERA_NAMES_32, "%32,%33,%34,%35", "%36", "%37", "%38", TESSERA_EIGHT_INTEGERS(0),
                         TESSERA_EIGHT_INTEGERS(8), TESSERA_EIGHT_INTEGERS(16), TESSERA_EIGHT_INTEGERS(24));
}
#undef TESSERA_INT8_PRODUCT
#undef TESSERA_NAMES_32
#undef TESSERA_NAMES_16
#undef TESSERA_NAMES_8
#undef TESSERA_EIGHT_INTEGERS

}  // namespace tessera::cuda
