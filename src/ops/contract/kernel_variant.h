// Which code a bound kernel runs, so that it can be run once before a graph records it. The first launch of a kernel
// may load its code, and the first call of a library's algorithm may initialise it: things that a recording refuses.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <typeindex>

namespace tessera {

// Kernels of one variant run the same code, on other addresses and other numbers of rows.
struct KernelVariant {
  std::type_index type;      // of the bound operator
  std::uint64_t choice = 0;  // BoundOp::choice()

  friend auto operator<=>(const KernelVariant&, const KernelVariant&) = default;
};

using KernelVariants = std::set<KernelVariant>;

}  // namespace tessera
