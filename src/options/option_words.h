// Renames options in messages. The layers below name options without dashes (mem_fraction_static), because they do not
// know where options come from. Users of the command line know the options as flags, so errors, log lines and explain's
// notes are reworded for them. Programs give options by name, so for them the flags in messages are replaced by names.
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
