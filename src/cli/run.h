// Runs the whole tessera command. Only main() is elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/runner/capture/registry.h"

namespace tessera::cli {

// Runs the command in `arguments` (without the program's name) and writes to standard output and error. `registry` has
// the program's components. Returns the exit code: 0 for success, 2 for a wrong command line, and 1 for all other
// errors. An error is one line on standard error: "tessera: error: <message>".
int run(const std::shared_ptr<Registry>& registry, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
