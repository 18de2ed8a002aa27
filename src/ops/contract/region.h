// Describes a region of a program that one kernel can run as a whole. A region is a first call, followed by any number
// of repetitions of one sequence of calls. For example, each repetition is a layer of a model. A device has a pattern
// for each region that its kernels support. compile/regions.h finds the regions in a program.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace tessera {

// A value within a region: one that is carried into a repetition, a result of a call, or an operand of a call.
struct RegionValue {
  enum class Kind { kCarried, kResult, kOperand };
  Kind kind;
  int call = 0;   // position in the repetition; unused for kCarried
  int index = 0;  // index of the value among the carried values, or among the call's results or operands
};

// Says that operand number `operand` of call number `call` of a repetition is the value `is`.
struct RegionLink {
  int call;
  int operand;
  RegionValue is;
};

// Describes a region. All spans point at static memory.
struct RegionPattern {
  static constexpr int kCarriedValues = 2;

  std::string_view first;                      // name of the first call's operator
  std::span<const std::string_view> repeated;  // names of the operators of one repetition, in order
  std::span<const RegionLink> links;
  // The values that are carried into a repetition. Into the first repetition, `begin` carries results or operands of
  // the first call. Into each later repetition, `next` carries results or operands of calls of the previous repetition.
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
