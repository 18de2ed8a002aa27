// The manual page tessera(1), from the commands and flags that --help shows.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/options/shown_command.h"

namespace tessera::cli {

// Writes the page in man(7)'s form of troff.
std::string man_page(std::string_view version, std::span<const ShownCommand> commands);

}  // namespace tessera::cli
