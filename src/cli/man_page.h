// Generates the manual page tessera(1) from the commands and flags that --help shows.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/options/shown_command.h"

namespace tessera::cli {

// Returns the page in troff with the macros of man(7).
std::string man_page(std::string_view version, std::span<const ShownCommand> commands);

}  // namespace tessera::cli
