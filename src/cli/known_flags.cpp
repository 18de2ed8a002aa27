#include "tessera/cli/known_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/base/nearest.h"

namespace tessera::cli {
namespace {

constexpr std::array<std::string_view, 12> kNotYet = {
    "--quantization",   "--nnodes",           "--ep-size",    "--moe-a2a-backend",       "--enable-dp-attention",
    "--enable-eplb",    "--enable-lora",      "--lora-paths", "--speculative-algorithm", "--disaggregation-mode",
    "--dllm-algorithm", "--enable-multimodal"};

}  // namespace

Status unknown_argument(std::string_view command, std::string_view argument, std::span<const std::string> flags) {
  if (!argument.starts_with('-')) {
    return invalid_argument(
        fmt::format("unexpected argument \"{}\"; tessera {} --help lists what is accepted", argument, command));
  }
  const std::string_view name = argument.substr(0, argument.find('='));
  if (std::find(kNotYet.begin(), kNotYet.end(), name) != kNotYet.end()) {
    return unimplemented(fmt::format("{} is not supported yet", name));
  }
  std::vector<std::string_view> candidates(flags.begin(), flags.end());
  std::erase(candidates, name);  // a file cannot ask for help
  const std::vector<std::string> near = nearest_names(name, candidates);
  if (near.empty()) {
    return invalid_argument(
        fmt::format("unknown flag {} of {}; tessera {} --help lists what is accepted", name, command, command));
  }
  return invalid_argument(
      fmt::format("unknown flag {} of {}; did you mean {}?", name, command, fmt::join(near, " or ")));
}

}  // namespace tessera::cli
