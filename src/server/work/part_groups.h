// Groups the parts into which a forward is cut (StitchingGraph), for the report /engine_state. A sequence of parts that
// repeats is listed once with the number of repeats, so that 80 equal layers take no more room than 2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/piecewise/stitching.h"

namespace tessera {

// A sequence of `length` parts that begins with part `first` and occurs `repeats` times in a row.
struct PartGroup {
  std::size_t first = 0;
  std::size_t length = 1;
  std::size_t repeats = 1;
  friend bool operator==(const PartGroup&, const PartGroup&) = default;
};

// Returns groups that together cover all parts, in the order of the parts. Neighbouring parts that do not repeat form
// one group. Two parts are equal if their kind, operators and output types are equal.
//
//   embedding, (attention, mlp), (attention, mlp), (attention, mlp), attention, head
//   → groups {first, length, repeats}: {0, 1, 1}, {1, 2, 3}, {7, 2, 1}
std::vector<PartGroup> group_parts(std::span<const Part> parts);

}  // namespace tessera
