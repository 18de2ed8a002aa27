#include "tessera/cli/environment.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace tessera::cli {
namespace {

struct Ignored {
  const char* variable;
  std::string_view instead;
};

constexpr std::array kIgnored = {
    Ignored{"SGLANG_ENABLE_TORCH_COMPILE", "use --enable-torch-compile"},
    Ignored{"SGLANG_VIT_ENABLE_CUDA_GRAPH", "use --enable-vit-cuda-graph"},
};

}  // namespace

std::vector<std::string> environment_warnings(const std::function<const char*(const char*)>& get) {
  std::vector<std::string> warnings;
  for (const Ignored& ignored : kIgnored) {
    const char* const set = get(ignored.variable);
    const std::string_view value = set == nullptr ? "" : set;
    if (value.empty() || value == "0" || value == "false" || value == "False") continue;
    warnings.push_back(
        fmt::format("{}={} in the environment has no effect: {}", ignored.variable, value, ignored.instead));
  }
  return warnings;
}

std::vector<std::string> environment_warnings() {
  return environment_warnings([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace tessera::cli
