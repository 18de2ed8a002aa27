// Reads SGLang's environment variables. Some of them replace a flag. The others have no effect here and cause a
// warning.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// A function that returns the value of the environment variable with the given name. It returns null if the variable is
// not set.
using Environment = std::function<const char*(const char*)>;
// Reads a variable of this process.
const char* process_environment(const char* name);

// Applies the variables that replace a flag. A flag on the command line or in the configuration file takes precedence.
// Each line shows a variable and the flag that it sets:
//   SGLANG_VIT_ENABLE_CUDA_GRAPH=1   --enable-vit-cuda-graph
//   SGLANG_VLM_CACHE_SIZE_MB=N       --image-cache-bytes, N MiB
// A switch is off if its value is "", "0" or "false". Returns kInvalidArgument for a wrong value. The message names the
// variable, its value and what is accepted.
Status take_environment(const Environment& get, CommandLine& line);

// Returns the command line's entry for `flag`, so that an environment variable may set its value. Returns null if the
// command does not have the flag, or if the user gave the flag.
FlagValue* find_free_flag(CommandLine& line, std::string_view flag);
void set_from_environment(FlagValue& flag, Json value);

// Returns a warning for each variable that has no effect here although it is set to something other than "", "0" or
// "false". Each warning names the flag to use instead.
std::vector<std::string> environment_warnings(const Environment& get);

}  // namespace tessera::cli
