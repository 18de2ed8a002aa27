// Flags that are not there: those of the documentation that this engine does not have yet, and
// mistyped ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera::cli {

// The error for `argument`, which no option of `command` took. `flags`: the command's, each "--name".
Status unknown_argument(std::string_view command, std::string_view argument, std::span<const std::string> flags);

}  // namespace tessera::cli
