// A region of a program that one kernel may run whole: a first call, then the same calls any number of times, as the
// layers of a model follow one another. A device describes the regions that its kernels serve by such patterns;
// compile/regions.h finds them.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace tessera {

// A value within a region.
struct RegionValue {
  enum class Kind { kCarried, kResult, kOperand };
  Kind kind;
  int call = 0;   // position in the repetition; of kCarried unused
  int index = 0;  // which carried value, result or operand
};

// Says that an operand of a call of the repetition is this value.
struct RegionLink {
  int call;
  int operand;
  RegionValue is;
};

// All spans point at static memory.
struct RegionPattern {
  static constexpr int kCarriedValues = 2;

  std::string_view first;                      // operator of the first call
  std::span<const std::string_view> repeated;  // operators of one repetition, in order
  std::span<const RegionLink> links;
  // The values that a repetition takes over from the one before: of the first call (kResult, kOperand), and of a
  // repetition for the next one.
  std::array<RegionValue, kCarriedValues> begin;
  std::array<RegionValue, kCarriedValues> next;

  bool has(std::string_view op) const {
    if (op == first) return true;
    for (const std::string_view name : repeated)
      if (name == op) return true;
    return false;
  }
};

}  // namespace tessera
