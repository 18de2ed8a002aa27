// Errors for flags that a command does not have: SGLang's flags for features that this engine lacks, and mistyped
// flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Returns the error for `argument`, which no option of `command` accepts. `flags`: the command's flags, each "--name".
// It is kUnimplemented for a missing feature, and names the flag, the feature, and what is supported. It is
// kInvalidArgument for all else, with similarly spelled flags, or else with `listed_in`, the place that lists the known
// flags ("": the command's help).
Status unknown_argument(std::string_view command, std::string_view argument, std::span<const std::string> flags,
                        std::string_view listed_in = {});

}  // namespace tessera
