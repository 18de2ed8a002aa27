// When this process began.
#pragma once

#include <string_view>

#include "tessera/base/status.h"
#include "tessera/base/timeline.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Clock ticks from the machine's start to the process's: field 22 of /proc/<process>/stat (proc(5)), whose second field
// may hold any character. data_loss for another text.
Result<long long> start_ticks(std::string_view stat);

// When the process started, which the kernel keeps to a clock tick (10 ms). Now, where the kernel does not tell.
Timeline::Clock::time_point process_start();

// Tells a command that runs an engine what came before: "process" from its start to `began`, when the program had
// control, and "options" from there to now.
void record_start(Command& command, Timeline::Clock::time_point began);

}  // namespace tessera::cli
