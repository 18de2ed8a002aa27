#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_BLOCK_TARGET __attribute__((target("arch=x86-64-v4,avx512vnni")))
#include "tessera/ops/quantised/blocks/block_products.h"

namespace tessera::blocks {

const BlockKernels* vnni_kernels() {
  static constexpr BlockKernels kKernels = make_block_kernels<VnniVectors>("avx512 vnni");
  static const bool has = __builtin_cpu_supports("x86-64-v4") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
  return has ? &kKernels : nullptr;
}

}  // namespace tessera::blocks
#else
#include "tessera/ops/quantised/blocks/block_kernels.h"

namespace tessera::blocks {

const BlockKernels* vnni_kernels() { return nullptr; }

}  // namespace tessera::blocks
#endif
