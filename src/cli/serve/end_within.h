// Limits the time that a failed process has to end, because its cleanup may hang.
#pragma once

#include <chrono>

#include "tessera/base/status.h"

namespace tessera::cli {

// Returns at once. If the process has not ended within `limit`, ends it with exit status 1 without destroying anything.
// First writes `error` to standard error in the usual form of command-line errors, unless it was written already.
void end_within(std::chrono::milliseconds limit, const Status& error);

}  // namespace tessera::cli
