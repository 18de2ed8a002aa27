// The tessera command as a function: everything but main().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/runner/capture/registry.h"

namespace tessera::cli {

// `registry`: what the program is made of. Runs the command that `arguments` (without the program's name) give, writing
// to standard output and error. The exit code: 0; 2 for a wrong command line; 1 for all else. An error is one line on
// standard error: "tessera: error: <message>".
int run(const std::shared_ptr<Registry>& registry, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
