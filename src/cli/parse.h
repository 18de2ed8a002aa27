// From the words of a command line to what was asked.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/runner/capture/registry.h"

namespace tessera::cli {

// Parses `arguments`, which are without the program's name. `registry`: devices and compilers that may be named; the
// options share it.
// Every error is the command line's (exit code 2) and names the flag, its value and what is accepted; of files only the
// one that --config names is read here.
// `load_plugin`: CommonFlags::load_plugin.
Result<CommandLine> parse_command_line(std::shared_ptr<const Registry> registry,
                                       const std::vector<std::string>& arguments,
                                       std::function<Status(const std::string& file)> load_plugin = {});

// What to print above an error where a command stands alone that says by a further word what it does (`tessera bench`):
// its help. "" for all else.
std::string help_of_bare_command(std::shared_ptr<const Registry> registry, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
