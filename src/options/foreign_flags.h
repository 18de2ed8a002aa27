// Flags of SGLang and vLLM that appear in launch commands and ask for something that Tessera decides differently. Each
// flag is supported, or it is accepted with a warning that says what happens instead. If a flag of Tessera means the
// same, the foreign name is an alias in engine_flags.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/options/flags.h"
#include "tessera/options/ineffective_flags.h"

namespace tessera {

struct ForeignFlags {
  std::string attention_backend{};  // "" here and in the other strings: the flag was not given
  std::string schedule_policy{};
  std::string grammar_backend{};
  std::string moe_a2a_backend{};
  std::optional<double> conservativeness{};
  std::optional<double> watchdog_s{};
  std::optional<double> memory_utilization{};
  bool prefix_caching = true;
  bool disable_overlap = false;
  bool expert_parallel = false;
  bool ep_moe = false;
  bool deepep_moe = false;
  bool chunked_prefill = true;
  bool no_chunked_prefill = false;
  std::string task{};
  std::string quantization{};
  std::optional<int> ep_size{};  // --ep-size; if it differs from --tp-size, a flag for whole experts is refused
  IneffectiveFlags ineffective{};
};

void add_foreign_flags(CommandFlags& add, ForeignFlags& foreign);

// Writes the effects of the supported flags to `engine`. Call it after all flags are taken.
Status finish_foreign_flags(const ForeignFlags& foreign, EngineOptions& engine);

// Appends warnings about flags that do nothing here, or not exactly what they do in SGLang or vLLM.
void warn_about_foreign_flags(const ForeignFlags& foreign, const EngineOptions& engine,
                              std::vector<std::string>& warnings);

}  // namespace tessera
