// Limits the time that a failed process takes to end, because its cleanup may hang.
#pragma once

#include <chrono>

#include "tessera/base/status.h"

namespace tessera::cli {

// Returns at once. If the process has not ended within `limit`, ends it with exit status 1 and destroys nothing.
// `error` is then written to standard error in the form of all command-line errors, unless it was written already.
void end_within(std::chrono::milliseconds limit, const Status& error);

}  // namespace tessera::cli
