// Finds the names closest to a mistyped one, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Returns up to `most` candidates within an edit distance of about a third of the name's length, nearest first, ties in
// the given order. Insertions, deletions, substitutions and swaps of neighbours cost one each; letter case is ignored.
// A candidate that begins with the whole name ("rms" for "rms_norm") is also near. Cost: O(|name| · |candidate|) per
// candidate. A name or candidate of more than 128 bytes matches only an equal one.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string_view> candidates,
                                       std::size_t most = 3);

}  // namespace tessera
