// Makes an executable from a runner's description. It splits and compiles the runner's graph, so that sizes can be
// bound.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/piecewise/executable.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// Returns the executable. `memory` is options.memory_plan, or isolated for the oracle (verify/verify.h). If `log` is
// true, logs a description of the executable.
Result<std::unique_ptr<Executable>> make_executable(const RunnerSpec& spec, const RunnerOptions& options,
                                                    const ExecutionEnvironment& environment, MemoryPlanKind memory,
                                                    bool log);

// Returns the compiler `name` for the device and a runner's graph. `cache` must outlive the compiler. If `cache` is
// null, compiled programs are not cached.
Result<std::unique_ptr<Compiler>> make_compiler(const std::string& name, RunnerRole role, const RunnerOptions& options,
                                                Device& device, ProfileCache* cache);

// Returns the operators' kernels: those in the options if there are any, and otherwise those of the device.
Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device);

}  // namespace tessera
