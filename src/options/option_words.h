// Renames options in messages. Messages of the layers below src/options contain option names (mem_fraction_static),
// because those layers do not know where options come from. The command line calls with_flags() for errors, log lines
// and explain's notes, because its users know options as flags (--mem-fraction-static). Messages of src/options already
// name flags. The C interface calls with_option_names() for log lines, because programs give options by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/options/flags.h"

namespace tessera {

// Returns `message` with the command's flags in place of option names: "mem_fraction_static" becomes
// "--mem-fraction-static". A name of one word ("dtype") is replaced only at the beginning of the message, before a
// colon. Paths, and the messages of rules that turn graphs off, stay unchanged.
std::string with_flags(std::string_view message, std::span<const FlagValue> flags);

// Returns `message` with option names in place of all flags, for programs that give options by name:
// "--mem-fraction-static 0.8" becomes "mem_fraction_static 0.8". "--help" stays.
std::string with_option_names(std::string_view message);

}  // namespace tessera
