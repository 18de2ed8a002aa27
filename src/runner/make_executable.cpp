#include "tessera/runner/make_executable.h"

#include <fmt/ranges.h>

#include <chrono>

#include "tessera/base/log.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {

Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device) {
  if (options.kernels != nullptr) return options.kernels;
  return options.registry->devices.kernels(device.properties().type);
}

Result<std::unique_ptr<Executable>> make_executable(const RunnerSpec& spec, const RunnerOptions& options,
                                                    const ExecutionEnvironment& environment, MemoryPlanKind memory,
                                                    bool log) {
  const Registry& registry = *options.registry;
  ProfileCache cache({.root = options.cache_dir});
  const std::unique_ptr<Compiler> compiler =
      TRY(registry.compilers.make(options.compiler, {.device = environment.device,
                                                     .ops = registry.ops,
                                                     .kernels = *TRY(kernels_of(options, environment.device)),
                                                     .options = {.deterministic = options.deterministic},
                                                     .cache = &cache}));
  StitchingGraph stitched = TRY(split_graph(spec.graph, registry.ops, spec.split_ops));
  const std::string name = stitched.name;
  const std::int64_t pieces = stitched.num_pieces();
  if (log) {
    log_info("split", "{}: pieces {}, split ops {}{}", name, pieces, stitched.num_split_ops(),
             spec.split_ops.empty() ? "" : fmt::format(" ({})", fmt::join(spec.split_ops, ", ")));
    for (const std::string& note : stitched.notes) log_info("split", "{}: {}", name, note);
  }
  const auto start = std::chrono::steady_clock::now();
  std::unique_ptr<Executable> compiled = TRY(Executable::create(std::move(stitched), *compiler, environment,
                                                                {.largest = spec.bucket(spec.largest),
                                                                 .memory = memory,
                                                                 .reserved_bytes = spec.reserved_bytes,
                                                                 .planner = options.planner}));
  if (log) {
    const CompileCounts& counts = compiled->compiled().counts;
    log_info("compile", "{}: pieces {}, compiled by {} in {:.1f} ms: {} programs compiled, {} from the cache", name,
             pieces, compiler->name(),
             std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(),
             counts.compiled, counts.loaded);
  }
  return compiled;
}

}  // namespace tessera
