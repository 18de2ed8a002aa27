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

// Parses `arguments`, without the program's name. Flags may name the devices and compilers of `registry`. The returned
// options share `registry`. `load_plugin` is explained at CommonFlags::load_plugin. Every error concerns the command
// line (exit code 2) and names the flag, its value and what is accepted. Reads no file except the one that --config
// names.
Result<CommandLine> parse_command_line(std::shared_ptr<const Registry> registry,
                                       const std::vector<std::string>& arguments,
                                       std::function<Status(const std::string& file)> load_plugin = {});

// If the command line lacks a subcommand (`tessera bench` alone), returns the help to print above the error. Returns ""
// for all other errors.
std::string help_of_bare_command(std::shared_ptr<const Registry> registry, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
