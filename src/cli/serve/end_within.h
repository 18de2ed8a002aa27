// Limits how long a failed process may take to end, because its cleanup may hang.
#pragma once

#include <chrono>

#include "tessera/base/status.h"

namespace tessera::cli {

// Starts a time limit and returns at once. If the process has not ended within `limit`, it is ended with exit status 1
// and without running destructors. Before that, `error` is written to standard error (write_last_error), unless an
// error was already written.
void end_within(std::chrono::milliseconds limit, const Status& error);

}  // namespace tessera::cli
