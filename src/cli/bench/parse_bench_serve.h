// Parses the flags of `bench serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/options/flags.h"

namespace tessera::cli {

inline constexpr std::int64_t kMostCount = 1 << 24;  // the largest accepted number of tokens or requests

class BenchServeFlags {
 public:
  void add(CommandFlags& add);
  // Returns the first flag of `bench serve` that the user gave, or "" if the user gave none.
  std::string given() const { return given_.empty() ? "" : given_[0].second; }
  // Returns whether the server runs in another process, so that no model is loaded.
  bool has_url() const { return !options_.url.empty(); }
  // Checks conditions on several flags, and returns the options. `engine` has the values of the model's flags.
  Result<BenchServeOptions> finish(const EngineOptions& engine, bool json);

 private:
  // The condition under which a flag applies.
  enum class Goes : std::uint8_t {
    kAlways,
    kWithDrawn,  // with random requests or agents, not with --trace
    kWithRandom,
    kWithAgents,
    kWithoutAgents,
    kWithAdapters,
    kWithSkew,
    kWithUrl,
    kWithModel
  };
  // Returns a function that stores the flag's name and condition in `given_`, and then calls `take`.
  CommandFlags::Take noting(Goes goes, CommandFlags::Take take);
  // Returns the first flag that the user gave and that applies only under the condition `goes`. Returns "" if there is
  // none.
  std::string given(Goes goes) const;
  void add_integer(CommandFlags& add, const std::string& name, const std::string& help, Goes goes, std::int64_t& to,
                   std::int64_t least = 1, std::int64_t most = kMostCount);
  void add_text(CommandFlags& add, const std::string& name, const std::string& type, const std::string& help, Goes goes,
                std::string& to);
  void add_load_flags(CommandFlags& add);
  void add_agent_flags(CommandFlags& add);
  void add_adapter_flags(CommandFlags& add);
  // Checks conditions on the flags of the load.
  Status check_load() const;
  void add_server_flags(CommandFlags& add);

  BenchServeOptions options_;
  std::optional<std::int64_t> output_tokens_;
  std::vector<std::pair<Goes, std::string>> given_;
};

}  // namespace tessera::cli
