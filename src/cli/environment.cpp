#include "tessera/cli/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <variant>

#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

struct Ignored {
  const char* variable;
  std::string_view instead;
};

constexpr std::array kIgnored = {
    Ignored{"SGLANG_ENABLE_TORCH_COMPILE", "use --enable-torch-compile"},
};

constexpr const char* kVitGraphs = "SGLANG_VIT_ENABLE_CUDA_GRAPH";
constexpr const char* kImageCache = "SGLANG_VLM_CACHE_SIZE_MB";

std::string_view value_of(const Environment& get, const char* variable) {
  const char* const set = get(variable);
  return set == nullptr ? "" : set;
}

// Parses the value of a variable that switches something on or off.
Result<bool> parse_switch(const char* variable, std::string_view value) {
  if (value.empty() || value == "0" || value == "false" || value == "False") return false;
  if (value == "1" || value == "true" || value == "True") return true;
  return invalid_argument(
      fmt::format("{}={} in the environment is not accepted; 1, true, 0 and false are", variable, value));
}

EngineOptions* engine_of(Command& command) {
  return std::visit(
      [](auto& options) -> EngineOptions* {
        if constexpr (requires { options.engine; }) {
          return &options.engine;
        } else {
          return nullptr;
        }
      },
      command);
}

}  // namespace

const char* process_environment(const char* name) { return std::getenv(name); }

FlagValue* find_free_flag(CommandLine& line, std::string_view flag) {
  const auto found = std::ranges::find(line.values, flag, &FlagValue::flag);
  return found == line.values.end() || found->source != FlagSource::kDefault ? nullptr : &*found;
}

void set_from_environment(FlagValue& flag, Json value) {
  flag.value = std::move(value);
  flag.source = FlagSource::kEnvironment;
}

Status take_environment(const Environment& get, CommandLine& line) {
  EngineOptions* const engine = engine_of(line.command);
  if (engine == nullptr) return ok_status();
  if (FlagValue* const flag = find_free_flag(line, "--enable-vit-cuda-graph");
      flag != nullptr && TRY(parse_switch(kVitGraphs, value_of(get, kVitGraphs)))) {
    engine->graphs.vit_cuda_graph = true;
    set_from_environment(*flag, true);
  }
  FlagValue* const cache = find_free_flag(line, "--image-cache-bytes");
  if (const std::string_view mib = value_of(get, kImageCache); cache != nullptr && !mib.empty()) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    engine->image_cache_bytes = TRY(parse_integer(std::string(kImageCache) + " in the environment", mib, {1, kMost}))
                                << 20;
    set_from_environment(*cache, engine->image_cache_bytes);
  }
  return ok_status();
}

std::vector<std::string> environment_warnings(const Environment& get) {
  std::vector<std::string> warnings;
  for (const Ignored& ignored : kIgnored) {
    const std::string_view value = value_of(get, ignored.variable);
    if (value.empty() || value == "0" || value == "false" || value == "False") continue;
    warnings.push_back(
        fmt::format("{}={} in the environment has no effect: {}", ignored.variable, value, ignored.instead));
  }
  return warnings;
}

}  // namespace tessera::cli
