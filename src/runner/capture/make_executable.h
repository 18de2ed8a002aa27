// From a runner's description to its executable: split, compiled, ready to be bound.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/piecewise/executable.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// `memory`: options.memory_plan, or isolated for the oracle. `log`: what was made.
Result<std::unique_ptr<Executable>> make_executable(const RunnerSpec& spec, const RunnerOptions& options,
                                                    const ExecutionEnvironment& environment, MemoryPlanKind memory,
                                                    bool log);

// The compiler of that name for the device and a runner's graph; `cache` outlives it, null: it keeps nothing.
Result<std::unique_ptr<Compiler>> make_compiler(const std::string& name, RunnerRole role, const RunnerOptions& options,
                                                Device& device, ProfileCache* cache);

// The kernels that operators run on: the options' where given, else the device's.
Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device);

}  // namespace tessera
