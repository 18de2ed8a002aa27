#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_BLOCK_TARGET __attribute__((target("arch=x86-64-v3")))
#include "tessera/ops/quantised/blocks/block_products.h"

namespace tessera::blocks {

const BlockKernels* avx2_kernels() {
  static constexpr BlockKernels kKernels = make_block_kernels<Avx2Vectors>("avx2");
  static const bool has = __builtin_cpu_supports("x86-64-v3") != 0;
  return has ? &kKernels : nullptr;
}

}  // namespace tessera::blocks
#else
#include "tessera/ops/quantised/blocks/block_kernels.h"

namespace tessera::blocks {

const BlockKernels* avx2_kernels() { return nullptr; }

}  // namespace tessera::blocks
#endif
