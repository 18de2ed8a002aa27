#include "tessera/runner/graphs/make_executable.h"

#include <fmt/ranges.h>

#include <chrono>
#include <optional>

#include "tessera/base/log.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

bool compiles_decodes(const RunnerOptions& options) {
  return !options.decode_compiler.empty() && options.decode_compiler != options.compiler;
}

}  // namespace

Result<const KernelTable*> kernels_of(const RunnerOptions& options, const Device& device) {
  if (options.kernels != nullptr) return options.kernels;
  return options.registry->devices.kernels(device.properties().type);
}

Result<std::unique_ptr<Compiler>> make_compiler(const std::string& name, RunnerRole role, const RunnerOptions& options,
                                                Device& device, ProfileCache* cache) {
  const Registry& registry = *options.registry;
  const Result<const Backend*> backend = registry.devices.backend(device.properties().type);
  const bool generates = backend.ok() && (*backend)->row_kernels != nullptr;
  const KernelTable* kernels = TRY(kernels_of(options, device));
  const std::int64_t halves_from = role == RunnerRole::kPrefill ? options.halves_from : 0;
  return registry.compilers.make(name, {.device = device,
                                        .ops = registry.ops,
                                        .kernels = *kernels,
                                        .options = {.deterministic = options.deterministic, .halves_from = halves_from},
                                        .row_kernels = generates ? &(*backend)->row_kernels() : nullptr,
                                        .cache = cache});
}

Result<std::unique_ptr<Executable>> make_executable(const RunnerSpec& spec, const RunnerOptions& options,
                                                    const ExecutionEnvironment& environment, MemoryPlanKind memory,
                                                    bool log) {
  const Registry& registry = *options.registry;
  ProfileCache own({.root = options.cache_dir});
  ProfileCache& cache = options.programs == nullptr ? own : *options.programs;
  const std::unique_ptr<Compiler> compiler =
      TRY(make_compiler(options.compiler, spec.role, options, environment.device, &cache));
  std::unique_ptr<Compiler> for_some;
  std::optional<CompilerForSome> small_decodes;
  if (is_decode_role(spec.role) && compiles_decodes(options)) {
    for_some = TRY(make_compiler(options.decode_compiler, spec.role, options, environment.device, &cache));
    small_decodes.emplace(CompilerForSome{.compiler = *for_some,
                                          .serves = [most = options.decode_compiler_max](const ir::Bucket& bucket) {
                                            return bucket[ir::Symbol::kRequests] <= most;
                                          }});
  }
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
                                                                 .planner = options.planner},
                                                                std::move(small_decodes)));
  if (log) {
    for (const std::string& note : compiled->compiled().notes) log_warn("compile", "{}: {}", name, note);
    const CompileCounts& counts = compiled->compile_counts();
    log_info("compile", "{}: pieces {}, compiled by {} in {:.1f} ms: {} programs compiled, {} from the cache", name,
             pieces,
             for_some == nullptr ? std::string(compiler->name())
                                 : fmt::format("{} and, up to {} requests, {}", compiler->name(),
                                               options.decode_compiler_max, for_some->name()),
             std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(),
             counts.compiled, counts.loaded);
  }
  return compiled;
}

}  // namespace tessera
