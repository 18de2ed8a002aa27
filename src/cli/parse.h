// Parses a command line into the options of a command.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/runner/capture/registry.h"

namespace tessera::cli {

// Parses `arguments`, without the program's name. `registry`: the devices and compilers that may be named; the options
// share it. `load_plugin`: CommonFlags::load_plugin. Every error concerns the command line (exit code 2) and names the
// flag, its value and what is accepted. No file is read but the one that --config names.
Result<CommandLine> parse_command_line(std::shared_ptr<const Registry> registry,
                                       const std::vector<std::string>& arguments,
                                       std::function<Status(const std::string& file)> load_plugin = {});

// Returns the help to print above an error if a command lacks its subcommand (`tessera bench` alone); "" for all other
// errors.
std::string help_of_bare_command(std::shared_ptr<const Registry> registry, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
