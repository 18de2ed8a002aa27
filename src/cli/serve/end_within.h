// A limit for the end of a process that has failed: what it still has to take down may hang.
#pragma once

#include <chrono>

#include "tessera/base/status.h"

namespace tessera::cli {

// Returns at once. Unless the process has ended by itself within `limit`, it is ended then, with `error` on standard
// error as every error of the command line, unless it was written already, and exit status 1; nothing is destroyed.
void end_within(std::chrono::milliseconds limit, const Status& error);

}  // namespace tessera::cli
