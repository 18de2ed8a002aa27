// Hopper's products of matrices in shared memory (PTX: wgmma.mma_async). A warpgroup of four warps computes each
// product. The instructions exist only in code for sm_90a.
//
//   begin_products();
//   multiply<T, kN>(sum, a, b, keep);          // any number, asynchronous
//   multiply_held<T, kN>(sum, a, b, keep);     // a in registers
//   end_products();                            // closes a group of products
//   wait_for_products<kPending>();             // until at most kPending groups are in flight
//
// Except for squares_at(), matrices have rows of 64 16-bit elements, which are 128 bytes. The 16-byte chunks of a row
// are permuted by the 128-byte swizzle of the copy engine (TMA). A matrix begins at a multiple of 1024 bytes.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

namespace tessera::cuda {

inline constexpr int kWarpgroup = 128;        // number of threads in a warpgroup
inline constexpr int kMostProductSums = 128;  // number of a thread's sums in a product of 64 by 256

// Returns the descriptor of a matrix in shared memory. One product uses 16 of the matrix's 64 columns. Adding
// kMatrixStep to the descriptor selects the next 16 columns. Eight rows are contiguous in 1024 bytes. kEightRows is the
// distance in bytes between one set of eight rows and the next.
template <int kEightRows = 1024>
__device__ inline std::uint64_t matrix_at(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = 1;
  return (address & 0x3FFFFU) >> 4 | std::uint64_t{1} << 16 | std::uint64_t{kEightRows >> 4} << 32 | kSwizzle128 << 62;
}
// Returns the descriptor of a matrix with more than 64 columns. A wgmma instruction reads 16 rows of the matrix.
// Columns 64 to 127 begin kNextColumns bytes after columns 0 to 63, and so on.
template <int kEightRows, int kNextColumns>
__device__ inline std::uint64_t wide_matrix_at(std::uint32_t address) {
  return (matrix_at<kEightRows>(address) & ~(std::uint64_t{0x3FFF} << 16)) | std::uint64_t{kNextColumns >> 4} << 16;
}
// Returns the descriptor of a matrix [16, 64] that is stored without a swizzle, in squares of eight rows by eight
// columns. The 16-byte rows of a square are contiguous. The second eight rows begin kNextRows bytes after the first,
// and the next eight columns begin kNextColumns bytes after the ones before them.
template <int kNextRows, int kNextColumns>
__device__ inline std::uint64_t squares_at(std::uint32_t address) {
  return (address & 0x3FFFFU) >> 4 | std::uint64_t{kNextRows >> 4} << 16 | std::uint64_t{kNextColumns >> 4} << 32;
}
inline constexpr std::uint64_t kMatrixStep = 2;  // 32 bytes, in the descriptor's unit of 16 bytes

// matrix_word() returns the lower word of matrix_at()'s descriptor, and kMatrixUpperWord is the upper word. Adding n to
// the lower word gives the descriptor of the matrix 16 n bytes further on.
__device__ inline std::uint32_t matrix_word(std::uint32_t address) {
  return static_cast<std::uint32_t>(matrix_at(address));
}
inline constexpr std::uint32_t kMatrixUpperWord = 1024 >> 4 | 1U << 30;
// Returns the descriptor whose lower word is `word`.
__device__ inline std::uint64_t matrix_of_word(std::uint32_t word) {
  return std::uint64_t{kMatrixUpperWord} << 32 | word;
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps values in their registers, and stops the compiler from moving computations of these values past this point.
// Without this call the compiler might move them, because it does not know that a product reads and writes registers
// after the instruction that issues the product.
template <int kCount>
__device__ inline void hold(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int kCount>
__device__ inline void hold(std::uint32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

// Keeps a value in a register. Otherwise the compiler may compute an address anew each time that it is used.
__device__ inline void keep_in_register(std::uint32_t& value) { asm volatile("" : "+r"(value)); }

// Raises or lowers the number of registers that each thread has. A whole warpgroup calls it. A raise waits until other
// warpgroups have released enough registers.
template <int kRegisters, bool kMore>
__device__ inline void keep_registers() {
  if constexpr (kMore) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
  }
}

// Computes sum[64, kN] = a[64, 16] · b[kN, 16]ᵀ, plus the old sum if `keep`. If kTurned, a is stored as [16, 64]. In
// the accumulator layout, h and i are 0 or 1, and sum[4 j + 2 h + i] of the warpgroup's thread t is the element in row
// 16 (t / 32) + 8 h + t % 32 / 4 and column 8 j + 2 (t % 4) + i.
#define TESSERA_SUMS(i)                                                                                               \
  "+f"(sum[(i)]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3]), "+f"(sum[(i) + 4]), "+f"(sum[(i) + 5]), \
      "+f"(sum[(i) + 6]), "+f"(sum[(i) + 7]), "+f"(sum[(i) + 8]), "+f"(sum[(i) + 9]), "+f"(sum[(i) + 10]),            \
      "+f"(sum[(i) + 11]), "+f"(sum[(i) + 12]), "+f"(sum[(i) + 13]), "+f"(sum[(i) + 14]), "+f"(sum[(i) + 15])
// The next two macros list four and eight sums, for products whose number of columns is not a multiple of 32.
#define TESSERA_FOUR_SUMS(i) "+f"(sum[(i)]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3])
#define TESSERA_EIGHT_SUMS(i)                                                                                         \
  "+f"(sum[(i)]), "+f"(sum[(i) + 1]), "+f"(sum[(i) + 2]), "+f"(sum[(i) + 3]), "+f"(sum[(i) + 4]), "+f"(sum[(i) + 5]), \
      "+f"(sum[(i) + 6]), "+f"(sum[(i) + 7])
#define TESSERA_NAMES_1 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define TESSERA_NAMES_2 TESSERA_NAMES_1 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define TESSERA_NAMES_2_5 TESSERA_NAMES_2 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define TESSERA_NAMES_3 TESSERA_NAMES_2 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define TESSERA_NAMES_4 TESSERA_NAMES_3 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define TESSERA_NAMES_5 TESSERA_NAMES_4 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define TESSERA_NAMES_6 TESSERA_NAMES_5 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define TESSERA_NAMES_7 TESSERA_NAMES_6 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define TESSERA_NAMES_8 \
  TESSERA_NAMES_7 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// NAMES lists the sums, which are the instruction's first operands. A, B and KEEP are the numbers of the next three
// operands. TURNED is "1" if a is [16, 64], else "0". The last arguments are the sums themselves.
#define TESSERA_PRODUCT(N, TYPE, TURNED, NAMES, A, B, KEEP, ...)                                        \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                           \
               ", 0;\n"                                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NAMES "}, " A ", " B \
               ", keep, 1, 1, " TURNED ", 0;\n}"                                                        \
               : __VA_ARGS__                                                                            \
               : "l"(a), "l"(b), "r"(keep))
#define TESSERA_PRODUCTS(TYPE, TURNED)                                                                                \
  if constexpr (kN == 32) TESSERA_PRODUCT("32", TYPE, TURNED, TESSERA_NAMES_1, "%16", "%17", "%18", TESSERA_SUMS(0)); \
  if constexpr (kN == 64)                                                                                             \
    TESSERA_PRODUCT("64", TYPE, TURNED, TESSERA_NAMES_2, "%32", "%33", "%34", TESSERA_SUMS(0), TESSERA_SUMS(16));     \
  if constexpr (kN == 80)                                                                                             \
    TESSERA_PRODUCT("80", TYPE, TURNED, TESSERA_NAMES_2_5, "%40", "%41", "%42", TESSERA_SUMS(0), TESSERA_SUMS(16),    \
                    TESSERA_EIGHT_SUMS(32));                                                                          \
  if constexpr (kN == 96)                                                                                             \
    TESSERA_PRODUCT("96", TYPE, TURNED, TESSERA_NAMES_3, "%48", "%49", "%50", TESSERA_SUMS(0), TESSERA_SUMS(16),      \
                    TESSERA_SUMS(32));                                                                                \
  if constexpr (kN == 128)                                                                                            \
    TESSERA_PRODUCT("128", TYPE, TURNED, TESSERA_NAMES_4, "%64", "%65", "%66", TESSERA_SUMS(0), TESSERA_SUMS(16),     \
                    TESSERA_SUMS(32), TESSERA_SUMS(48));                                                              \
  if constexpr (kN == 160)                                                                                            \
    TESSERA_PRODUCT("160", TYPE, TURNED, TESSERA_NAMES_5, "%80", "%81", "%82", TESSERA_SUMS(0), TESSERA_SUMS(16),     \
                    TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64));                                            \
  if constexpr (kN == 192)                                                                                            \
    TESSERA_PRODUCT("192", TYPE, TURNED, TESSERA_NAMES_6, "%96", "%97", "%98", TESSERA_SUMS(0), TESSERA_SUMS(16),     \
                    TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64), TESSERA_SUMS(80));                          \
  if constexpr (kN == 224)                                                                                            \
    TESSERA_PRODUCT("224", TYPE, TURNED, TESSERA_NAMES_7, "%112", "%113", "%114", TESSERA_SUMS(0), TESSERA_SUMS(16),  \
                    TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64), TESSERA_SUMS(80), TESSERA_SUMS(96));        \
  if constexpr (kN == 256)                                                                                            \
  TESSERA_PRODUCT("256", TYPE, TURNED, TESSERA_NAMES_8, "%128", "%129", "%130", TESSERA_SUMS(0), TESSERA_SUMS(16),    \
                  TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64), TESSERA_SUMS(80), TESSERA_SUMS(96),           \
                  TESSERA_SUMS(112))
template <class T, int kN, bool kTurned = false, int kSums>
__device__ inline void multiply(float (&sum)[kSums], std::uint64_t a, std::uint64_t b, int keep) {
  static_assert((kN % 32 == 0 && kN >= 32 && kN <= 256) || kN == 80,
                "products of 64 by 32, 64, … 256 and by 80 are written down");
  static_assert(kSums >= kN / 2);
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kTurned) {
    TESSERA_PRODUCTS("bf16", "1");
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    TESSERA_PRODUCTS("bf16", "0");
  } else if constexpr (kTurned) {
    TESSERA_PRODUCTS("f16", "1");
  } else {
    TESSERA_PRODUCTS("f16", "0");
  }
}
#undef TESSERA_PRODUCTS

// Computes sum[64, kN] = a[64, 32] · b[kN, 32]ᵀ of E4M3 numbers, plus the old sum if `keep`. Rows of both matrices have
// 128 elements of one byte. Adding kMatrixStep to a descriptor selects the next 32 elements of each row. Hopper's sums
// of such products have a precision of only about 14 bits, so the caller adds up longer sums in float32 registers
// (arXiv 2412.19437, 3.3.2).
#define TESSERA_E4M3_PRODUCT(N, NAMES, A, B, KEEP, ...)                                                            \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                                      \
               ", 0;\n"                                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" N "k32.f32.e4m3.e4m3 {" NAMES "}, " A ", " B ", keep, 1, 1;\n}" \
               : __VA_ARGS__                                                                                       \
               : "l"(a), "l"(b), "r"(keep))
template <int kN>
__device__ inline void multiply_e4m3(float (&sum)[kN / 2], std::uint64_t a, std::uint64_t b, int keep) {
  static_assert(kN == 8 || kN == 32 || kN == 64 || kN == 128, "these products are written down");
  if constexpr (kN == 8) TESSERA_E4M3_PRODUCT("8", "%0,%1,%2,%3", "%4", "%5", "%6", TESSERA_FOUR_SUMS(0));
  if constexpr (kN == 32) TESSERA_E4M3_PRODUCT("32", TESSERA_NAMES_1, "%16", "%17", "%18", TESSERA_SUMS(0));
  if constexpr (kN == 64)
    TESSERA_E4M3_PRODUCT("64", TESSERA_NAMES_2, "%32", "%33", "%34", TESSERA_SUMS(0), TESSERA_SUMS(16));
  if constexpr (kN == 128)
    TESSERA_E4M3_PRODUCT("128", TESSERA_NAMES_4, "%64", "%65", "%66", TESSERA_SUMS(0), TESSERA_SUMS(16),
                         TESSERA_SUMS(32), TESSERA_SUMS(48));
}
#undef TESSERA_E4M3_PRODUCT

// Computes the same product as multiply(), but takes `a` from registers. Each warp has the A operand layout of
// mma.m16n8k16 (tensor_core.cuh). Warp w of the warpgroup has rows 16 w … 16 w + 15. The sums of an earlier product,
// packed to 16 bits, already have this layout. The registers of `a` may change only after the product has ended. If
// transposed, b is [16, kN].
#define TESSERA_HELD_PRODUCT(N, TYPE, TRANSPOSED, NAMES, A, B, KEEP, ...)                                 \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP                                             \
               ", 0;\n"                                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NAMES "}, {" A "}, " B \
               ", keep, 1, 1, " TRANSPOSED ";\n}"                                                         \
               : __VA_ARGS__                                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))
#define TESSERA_HELD_PRODUCTS(TYPE, TRANSPOSED)                                                                        \
  if constexpr (kN == 32)                                                                                              \
    TESSERA_HELD_PRODUCT("32", TYPE, TRANSPOSED, TESSERA_NAMES_1, "%16,%17,%18,%19", "%20", "%21", TESSERA_SUMS(0));   \
  if constexpr (kN == 64)                                                                                              \
    TESSERA_HELD_PRODUCT("64", TYPE, TRANSPOSED, TESSERA_NAMES_2, "%32,%33,%34,%35", "%36", "%37", TESSERA_SUMS(0),    \
                         TESSERA_SUMS(16));                                                                            \
  if constexpr (kN == 96)                                                                                              \
    TESSERA_HELD_PRODUCT("96", TYPE, TRANSPOSED, TESSERA_NAMES_3, "%48,%49,%50,%51", "%52", "%53", TESSERA_SUMS(0),    \
                         TESSERA_SUMS(16), TESSERA_SUMS(32));                                                          \
  if constexpr (kN == 128)                                                                                             \
    TESSERA_HELD_PRODUCT("128", TYPE, TRANSPOSED, TESSERA_NAMES_4, "%64,%65,%66,%67", "%68", "%69", TESSERA_SUMS(0),   \
                         TESSERA_SUMS(16), TESSERA_SUMS(32), TESSERA_SUMS(48));                                        \
  if constexpr (kN == 160)                                                                                             \
    TESSERA_HELD_PRODUCT("160", TYPE, TRANSPOSED, TESSERA_NAMES_5, "%80,%81,%82,%83", "%84", "%85", TESSERA_SUMS(0),   \
                         TESSERA_SUMS(16), TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64));                      \
  if constexpr (kN == 192)                                                                                             \
    TESSERA_HELD_PRODUCT("192", TYPE, TRANSPOSED, TESSERA_NAMES_6, "%96,%97,%98,%99", "%100", "%101", TESSERA_SUMS(0), \
                         TESSERA_SUMS(16), TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64), TESSERA_SUMS(80));    \
  if constexpr (kN == 224)                                                                                             \
    TESSERA_HELD_PRODUCT("224", TYPE, TRANSPOSED, TESSERA_NAMES_7, "%112,%113,%114,%115", "%116", "%117",              \
                         TESSERA_SUMS(0), TESSERA_SUMS(16), TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64),      \
                         TESSERA_SUMS(80), TESSERA_SUMS(96));                                                          \
  if constexpr (kN == 256)                                                                                             \
  TESSERA_HELD_PRODUCT("256", TYPE, TRANSPOSED, TESSERA_NAMES_8, "%128,%129,%130,%131", "%132", "%133",                \
                       TESSERA_SUMS(0), TESSERA_SUMS(16), TESSERA_SUMS(32), TESSERA_SUMS(48), TESSERA_SUMS(64),        \
                       TESSERA_SUMS(80), TESSERA_SUMS(96), TESSERA_SUMS(112))
template <class T, int kN, bool kTransposed = false, int kSums>
__device__ inline void multiply_held(float (&sum)[kSums], const std::uint32_t* a, std::uint64_t b, int keep) {
  static_assert(kN % 32 == 0 && kN >= 32 && kN <= 2 * kSums, "products of 64 by 32, 64, … 256 are written down");
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kTransposed) {
    TESSERA_HELD_PRODUCTS("bf16", "1");
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    TESSERA_HELD_PRODUCTS("bf16", "0");
  } else if constexpr (kTransposed) {
    TESSERA_HELD_PRODUCTS("f16", "1");
  } else {
    TESSERA_HELD_PRODUCTS("f16", "0");
  }
}
#undef TESSERA_HELD_PRODUCTS
#undef TESSERA_HELD_PRODUCT
#undef TESSERA_PRODUCT
#undef TESSERA_NAMES_8
#undef TESSERA_NAMES_7
#undef TESSERA_NAMES_6
#undef TESSERA_NAMES_5
#undef TESSERA_NAMES_4
#undef TESSERA_NAMES_3
#undef TESSERA_NAMES_2_5
#undef TESSERA_NAMES_2
#undef TESSERA_NAMES_1
#undef TESSERA_EIGHT_SUMS
#undef TESSERA_FOUR_SUMS
#undef TESSERA_SUMS

}  // namespace tessera::cuda
