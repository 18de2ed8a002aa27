// Runs work in a child process, because the work may crash, hang, or end the process that runs it.
#pragma once

#include <chrono>
#include <functional>

#include "tessera/base/status.h"

namespace tessera::plugin {

// Runs `work` in a forked copy of this process and returns its Status. Changes that `work` makes do not reach this
// process. Returns kInternal if the child crashes, ends early or takes longer than `limit`. `work` must not take a lock
// that another thread may hold during the fork, so this must be called before threads are started.
Status run_in_child(const std::function<Status()>& work, std::chrono::milliseconds limit);

}  // namespace tessera::plugin
