// Environment variables of SGLang's: those that say what a flag says, and those that have no effect here.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// A variable's value by its name, null where it is not set.
using Environment = std::function<const char*(const char*)>;
// Reads a variable of this process.
const char* process_environment(const char* name);

// Takes what is asked for by a variable, unless the command line or its file has the flag:
//   SGLANG_VIT_ENABLE_CUDA_GRAPH=1   --enable-vit-cuda-graph
//   SGLANG_VLM_CACHE_SIZE_MB=N       --image-cache-bytes, N MiB
// A switch asks for nothing where it is "", "0" or "false". kInvalidArgument names variable, value and what is
// accepted.
Status take_environment(const Environment& get, CommandLine& line);

// The value of `flag`, unless the command has none or it was given.
FlagValue* find_free_flag(CommandLine& line, std::string_view flag);
void set_from_environment(FlagValue& flag, Json value);

// A warning for each variable that asks for something by a way that is not taken here, naming what to use.
std::vector<std::string> environment_warnings(const Environment& get);

}  // namespace tessera::cli
