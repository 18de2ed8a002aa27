// Runs work that may crash, hang or end its process, in a child process.
#pragma once

#include <chrono>
#include <functional>

#include "tessera/base/status.h"

namespace tessera::plugin {

// Runs `work` in a copy of this process and returns its Status. The changes that `work` makes do not reach this
// process. kInternal if it crashes, ends the process or takes longer than `limit`. `work` must not use a lock that
// another thread may hold, so call this before threads are started.
Status run_in_child(const std::function<Status()>& work, std::chrono::milliseconds limit);

}  // namespace tessera::plugin
