#include "tessera/runner/dispatch/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace tessera {
namespace {

constexpr std::array<std::string_view, 4> kModeNames = {"off", "piecewise", "full", "full_and_piecewise"};

// The architectures without piecewise graphs. In their sparse attention, an indexer with its own cache chooses the keys
// of each row. No operator of the engine computes this attention.
constexpr std::array<std::string_view, 1> kArchitectures = {"DeepseekV32ForCausalLM"};

constexpr std::array<Rule, 6> kRules = {{
    {"disable_cuda_graph", [](const RuleInputs& in) { return in.disable_cuda_graph; },
     "Disable piecewise CUDA graph because disable_cuda_graph is set", true},
    {"disable_piecewise_cuda_graph", [](const RuleInputs& in) { return in.disable_piecewise_cuda_graph; },
     "Disable piecewise CUDA graph because disable_piecewise_cuda_graph is set", true},
    {"cuda_graph_mode", [](const RuleInputs& in) { return in.mode == GraphMode::kOff; },
     "Disable piecewise CUDA graph because cuda_graph_mode is off", true},
    {"architecture",
     [](const RuleInputs& in) { return std::ranges::find(kArchitectures, in.architecture) != kArchitectures.end(); },
     "Disable piecewise CUDA graph because piecewise_cuda_graph does not support the model architecture", false,
     [](const RuleInputs& in) { return ": " + in.architecture; }},
    {"standard_gqa", [](const RuleInputs& in) { return !in.standard_gqa; },
     "Disable piecewise CUDA graph because some layers do not apply Standard GQA", false},
    {"cache_layout", [](const RuleInputs& in) { return !in.undeclared_layers.empty(); },
     "Disable piecewise CUDA graph because the operators do not declare the cache layout of some layers", false,
     [](const RuleInputs& in) { return fmt::format(": {}", fmt::join(in.undeclared_layers, ", ")); }},
}};

}  // namespace

std::string_view graph_mode_name(GraphMode mode) { return kModeNames[static_cast<std::size_t>(mode)]; }

Result<GraphMode> parse_graph_mode(std::string_view text) {
  for (std::size_t i = 0; i < kModeNames.size(); ++i) {
    if (kModeNames[i] == text) return static_cast<GraphMode>(i);
  }
  return invalid_argument(fmt::format("\"{}\" is none of off, piecewise, full, full_and_piecewise", text));
}

std::span<const Rule> piecewise_rules() { return kRules; }

GraphSwitches apply_rules(const RuleInputs& inputs) {
  GraphSwitches switches;
  switches.prefill_whole = inputs.mode == GraphMode::kFull;
  for (const Rule& rule : kRules) {
    if (!rule.applies(inputs) || (inputs.enforce_piecewise_cuda_graph && !rule.by_user)) continue;
    switches.prefill = false;
    switches.messages.push_back(std::string(rule.message) + (rule.detail == nullptr ? "" : rule.detail(inputs)));
  }
  // Decode graphs depend on the user's options and on whether the model generates tokens. In piecewise mode, decode
  // batches replay prefill graphs.
  switches.decode = inputs.generates && !inputs.disable_cuda_graph && inputs.mode != GraphMode::kOff &&
                    inputs.mode != GraphMode::kPiecewise;
  return switches;
}

}  // namespace tessera
