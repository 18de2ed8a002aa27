// Runs work in a child process that may crash, hang or end the process.
#pragma once

#include <chrono>
#include <functional>

#include "tessera/base/status.h"

namespace tessera::plugin {

// Runs `work` in a copy of this process and returns its Status. Changes that `work` makes are not seen here. kInternal
// if it crashes, ends the process or takes longer than `limit`. `work` must not use a lock that another thread may
// hold: call this before threads are started.
Status run_in_child(const std::function<Status()>& work, std::chrono::milliseconds limit);

}  // namespace tessera::plugin
