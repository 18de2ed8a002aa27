// Does in a child process what may crash, hang or end the process.
#pragma once

#include <chrono>
#include <functional>

#include "tessera/base/status.h"

namespace tessera::plugin {

// The Status of `work`, which runs in a copy of this process; nothing of what it changes is seen here. kInternal where
// it crashes, ends the process or takes longer than `limit`. `work` may use no lock that another thread of this process
// could hold: call it before threads are started.
Status run_in_child(const std::function<Status()>& work, std::chrono::milliseconds limit);

}  // namespace tessera::plugin
