// From the words of a command line to what was asked.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// `arguments` without the program's name. Every error is the command line's (exit code 2) and names
// the flag, its value and what is accepted; of files only the one that --config names is read here.
Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments);

}  // namespace tessera::cli
