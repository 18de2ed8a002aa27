// Reads SGLang's environment variables: some replace a flag, others have no effect here.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Returns a variable's value by its name; null if it is not set.
using Environment = std::function<const char*(const char*)>;
// Reads a variable of this process.
const char* process_environment(const char* name);

// Applies the variables that stand for a flag, unless the command line or its file has the flag:
//   SGLANG_VIT_ENABLE_CUDA_GRAPH=1   --enable-vit-cuda-graph
//   SGLANG_VLM_CACHE_SIZE_MB=N       --image-cache-bytes, N MiB
// A switch is off if it is "", "0" or "false". kInvalidArgument names variable, value and what is accepted.
Status take_environment(const Environment& get, CommandLine& line);

// Returns the value of `flag`; null if the command lacks the flag or it was given.
FlagValue* find_free_flag(CommandLine& line, std::string_view flag);
void set_from_environment(FlagValue& flag, Json value);

// Returns a warning for each set variable that has no effect here; it names what to use instead.
std::vector<std::string> environment_warnings(const Environment& get);

}  // namespace tessera::cli
