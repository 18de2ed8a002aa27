// Generates shell completion of command lines from the commands and flags that --help shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/options/shown_command.h"

namespace tessera::cli {

enum class Shell : std::uint8_t { kBash, kZsh, kFish };

// Returns the shell's script. It completes commands, flags, listed values, and files where a file is expected.
std::string completion(Shell shell, std::span<const ShownCommand> commands);

}  // namespace tessera::cli
