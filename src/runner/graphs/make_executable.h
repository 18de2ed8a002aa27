// Makes an executable from a runner's description: splits and compiles its graph, ready to be bound.
#pragma once

#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/piecewise/executable.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// Returns the executable. `memory` is options.memory_plan, or isolated for the oracle (verify/verify.h). `log` says
// whether to log what was made.
Result<std::unique_ptr<Executable>> make_executable(const RunnerSpec& spec, const RunnerOptions& options,
                                                    const ExecutionEnvironment& environment, MemoryPlanKind memory,
                                                    bool log);

// Returns the compiler `name` for the device and a runner's graph. `cache` must outlive the compiler. If `cache` is
// null, compiled programs are not cached.
Result<std::unique_ptr<Compiler>> make_compiler(const std::string& name, RunnerRole role, const RunnerOptions& options,
                                                Device& device, ProfileCache* cache);

// Returns the kernels for operators: the options' kernels if given, else the device's.
Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device);

}  // namespace tessera
