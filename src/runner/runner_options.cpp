#include "tessera/runner/runner_options.h"

#include "tessera/comm/communicator.h"

namespace tessera {

bool RunnerOptions::runs_alone() const { return communicator == nullptr || communicator->world_size() == 1; }

bool RunnerOptions::has_stages() const { return communicator != nullptr && communicator->pipeline() != nullptr; }

bool RunnerOptions::logs_common_work() const { return communicator == nullptr || communicator->world_rank() == 0; }

}  // namespace tessera
