// Finds the names closest to a mistyped one, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Returns up to `most` candidates whose edit distance from the name is at most about a third of the name's length. The
// nearest candidate comes first. Candidates at the same distance keep the given order. Insertions, deletions,
// substitutions and swaps of neighbouring letters cost one each. Letter case is ignored. If the name has at least two
// bytes, a candidate that begins with the whole name is also accepted, at any distance ("rms_norm" for "rms"). This
// comparison respects letter case. Cost: O(|name| · |candidate|) per candidate. If the name or a candidate is longer
// than 128 bytes, no edit distance is computed. The candidate is then accepted only if it begins with the whole name.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string_view> candidates,
                                       std::size_t most = 3);

}  // namespace tessera
