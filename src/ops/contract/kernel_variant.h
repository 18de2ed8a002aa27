// Identifies the code that a bound kernel runs, so that the code can run once before a graph records it. The first
// launch of a kernel may load its code, and the first call of a library's algorithm may initialise it. Neither is
// allowed while a stream records.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <typeindex>

namespace tessera {

// Kernels with equal variants run the same code. Only their addresses and numbers of rows may differ.
struct KernelVariant {
  std::type_index type;      // type of the bound operator
  std::uint64_t choice = 0;  // BoundOp::choice()

  friend auto operator<=>(const KernelVariant&, const KernelVariant&) = default;
};

using KernelVariants = std::set<KernelVariant>;

}  // namespace tessera
