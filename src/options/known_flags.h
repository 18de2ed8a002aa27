// Makes errors for flags that a command does not have: SGLang's flags for features that this engine lacks, and mistyped
// flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// Returns the error for `argument`, which no option of `command` accepts. `flags` are the command's flags, written as
// "--name". If the argument is a flag for a missing feature, the error is kUnimplemented and names the flag, the
// feature, and what is supported. Otherwise the error is kInvalidArgument and suggests similarly spelled flags. If
// there are none, the error names `listed_in`, the place that lists the known flags ("": the command's help).
Status unknown_argument(std::string_view command, std::string_view argument, std::span<const std::string> flags,
                        std::string_view listed_in = {});

}  // namespace tessera
