// The names closest to a mistyped one, for suggestions in error messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Up to `most` candidates within an edit distance of about a third of the name's length, nearest first, equals in
// the order given. Insertions, deletions, substitutions and swaps of neighbours count one each; letter case counts
// nothing. A candidate that begins with the whole name ("rms" for "rms_norm") is near too.
// Cost: O(|name| · |candidate|) for each candidate; names longer than 128 bytes match nothing but themselves.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string_view> candidates,
                                       std::size_t most = 3);

}  // namespace tessera
