#define TESSERA_BLOCK_TARGET
#include "tessera/ops/quantised/blocks/block_products.h"

namespace tessera::blocks {

const BlockKernels* plain_kernels() {
  static constexpr BlockKernels kKernels = make_block_kernels<PlainVectors>("plain");
  return &kKernels;
}

const BlockKernels& block_kernels() {
  static const BlockKernels* const best = vnni_kernels() != nullptr   ? vnni_kernels()
                                          : avx2_kernels() != nullptr ? avx2_kernels()
                                                                      : plain_kernels();
  return *best;
}

}  // namespace tessera::blocks
