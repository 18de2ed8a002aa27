#include "tessera/cli/inspect/shown_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/compile/program_text.h"
#include "tessera/piecewise/compiled_forward.h"
#include "tessera/piecewise/forward_memory.h"
#include "tessera/piecewise/part_entry.h"
#include "tessera/piecewise/splitter.h"
#include "tessera/runner/graphs/make_executable.h"
#include "tessera/runner/runner_spec.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kProgram = "program:";
constexpr std::string_view kEntries = "entries";

Result<CompiledForward> compile_spec(const RunnerSpec& spec, const EnginePlan& plan, Device& device) {
  const std::unique_ptr<Compiler> compiler =
      TRY(make_compiler(plan.runner.compiler, spec.role, plan.runner, device, /*cache=*/nullptr));
  return compile_forward(TRY(split_graph(spec.graph, plan.runner.registry->ops, spec.split_ops)), *compiler);
}

Result<std::size_t> parse_part(std::string_view name, std::size_t num_parts) {
  const std::string_view digits = name.substr(kProgram.size());
  std::size_t part = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), part);
  if (error == std::errc{} && end == digits.data() + digits.size() && part < num_parts) return part;
  return invalid_argument(fmt::format("\"{}\" is no program of this model; there are {}0 to {}{}", name, kProgram,
                                      kProgram, num_parts - 1));
}

Result<std::string> program_text(const CompiledForward& forward, std::string_view name, const ir::Bucket& bucket) {
  const CompiledPart& part = forward.parts[TRY(parse_part(name, forward.parts.size()))];
  const auto sharing = std::count_if(forward.parts.begin(), forward.parts.end(),
                                     [&](const CompiledPart& other) { return other.program == part.program; });
  Program named = *part.program;
  for (std::size_t i = 0; i < named.values.size(); ++i) named.values[i].name = part.value_names[i];
  std::string text = fmt::format("{} of {}, one of {} with this program\n{}", part.name, forward.name, sharing,
                                 TRY(to_text(named, bucket)));
  for (const std::string& note : forward.notes) text += note + "\n";
  return text;
}

Result<std::string> entries_text(const CompiledForward& forward, const RunnerSpec& spec, const ir::Bucket& largest) {
  const ForwardMemory memory = TRY(ForwardMemory::create(forward, {.largest = largest}));
  std::string text;
  for (const std::int64_t size : spec.ladder)
    text += to_text(TRY(part_entries(forward, memory, spec.bucket(size), /*bound=*/nullptr)));
  return text;
}

}  // namespace

bool names_program(std::string_view name) { return name.starts_with(kProgram) || name == kEntries; }

Result<std::string> shown_program(const EnginePlan& plan, Device& device, std::string_view name) {
  const std::vector<RunnerSpec> specs = TRY(make_runner_specs(plan.graphs, plan.runner));
  const RunnerSpec& spec = specs[static_cast<std::size_t>(RunnerRole::kPrefill)];
  const CompiledForward forward = TRY(compile_spec(spec, plan, device));
  const ir::Bucket largest = spec.bucket(spec.largest);
  return name == kEntries ? entries_text(forward, spec, largest) : program_text(forward, name, largest);
}

}  // namespace tessera::cli
