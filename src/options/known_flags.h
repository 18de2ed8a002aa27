// Flags that a command does not have: SGLang's for features that this engine lacks, and mistyped ones.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// The error for `argument`, which no option of `command` took. `flags`: the command's, each "--name". kUnimplemented
// for a feature that is missing: it names the flag, the feature, and what is supported. kInvalidArgument for all else,
// with the flags that are spelled alike, or else `listed_in`, where the known ones are listed; "": the command's help.
Status unknown_argument(std::string_view command, std::string_view argument, std::span<const std::string> flags,
                        std::string_view listed_in = {});

}  // namespace tessera
