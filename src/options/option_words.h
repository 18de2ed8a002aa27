// Messages of the layers below name options without dashes (mem_fraction_static), because they do not know where
// options come from. A user of the command line knows them as flags: errors, log lines and explain's notes name those.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/options/flags.h"

namespace tessera {

// `message` with the command's own flags in place of option names: "mem_fraction_static" becomes
// "--mem-fraction-static". A name of one word ("dtype") is only replaced where the message begins with it and a colon.
// Paths, and the rules that turn graphs off, keep their words.
std::string with_flags(std::string_view message, std::span<const FlagValue> flags);

}  // namespace tessera
