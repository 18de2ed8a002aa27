// Completion of the command line in shells, from the commands and flags that --help shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/options/shown_command.h"

namespace tessera::cli {

enum class Shell : std::uint8_t { kBash, kZsh, kFish };

// The shell's program: commands, flags, the values that are listed, and files where a file is named.
std::string completion(Shell shell, std::span<const ShownCommand> commands);

}  // namespace tessera::cli
