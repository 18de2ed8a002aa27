// Determines when this process started.
#pragma once

#include <string_view>

#include "tessera/base/status.h"
#include "tessera/base/timeline.h"
#include "tessera/cli/options.h"

namespace tessera::cli {

// Returns the clock ticks between the machine's start and the process's start: field 22 of /proc/<process>/stat
// (proc(5)). The second field is the program's name in parentheses and may contain any character, so the fields after
// the last ')' are counted. Returns kDataLoss for malformed text.
Result<long long> start_ticks(std::string_view stat);

// Returns when the process started, with the kernel's precision of one clock tick (10 ms). Returns the current time if
// the start time cannot be read.
Timeline::Clock::time_point process_start();

// Adds two phases to the timeline of a command that runs an engine. "process" lasts from the process's start to
// `began`, the time at which run() was entered. "options" lasts from `began` until now.
void record_start(Command& command, Timeline::Clock::time_point began);

}  // namespace tessera::cli
