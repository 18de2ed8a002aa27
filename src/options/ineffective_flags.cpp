#include "tessera/options/ineffective_flags.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

struct IneffectiveFlag {
  const char* name;
  const char* type;              // "" for a switch
  std::string_view done = {};    // what happens instead; "": the switch asks for the usual behaviour
  std::string_view anyway = {};  // values that ask for the usual behaviour, separated by spaces
};

constexpr std::string_view kEngineHasIt = "the engine chooses kernels and exchanges by device and shape";
constexpr std::string_view kRanks = "ranks are threads of one process on each machine";
constexpr std::string_view kOneStep = "each step is scheduled by itself, while the one before it runs";
constexpr std::string_view kNoPaths = "answers name no paths, and a proxy takes off the prefix that it adds";
constexpr IneffectiveFlag kIneffective[] = {
    // These flags ask for Tessera's usual behaviour.
    {"--disable-log-stats", ""},
    {"--disable-uvicorn-access-log", ""},
    {"--disable-frontend-multiprocessing", ""},
    {"--skip-server-warmup", ""},
    {"--enable-cache-report", ""},
    {"--enable-prompt-tokens-details", ""},
    {"--enable-priority-scheduling", ""},
    {"--enable-mixed-chunk", ""},
    {"--enable-reasoning", ""},
    {"--async-scheduling", ""},
    {"--sleep-on-idle", ""},
    {"--enable-ssl-refresh", ""},
    {"--trust-request-chat-template", ""},
    // These flags ask for something that Tessera decides differently.
    {"--swap-space", "X", "the KV cache stays on the device, and a preempted request computes it again", "0"},
    {"--cpu-offload-gb", "X", "weights stay on the device", "0"},
    {"--max-prefill-tokens", "N", "--chunked-prefill-size is the most tokens of a forward"},
    {"--num-scheduler-steps", "N", kOneStep, "1"},
    {"--num-continuous-decode-steps", "N", kOneStep, "1"},
    {"--max-seq-len-to-capture", "N", "a decode graph serves requests of any length"},
    {"--sampling-backend", "NAME", kEngineHasIt},
    {"--disable-custom-all-reduce", "", kEngineHasIt},
    {"--enable-p2p-check", "", kEngineHasIt},
    {"--enable-nccl-nvls", "", kEngineHasIt},
    {"--disable-shared-experts-fusion", "", kEngineHasIt},
    {"--disable-chunked-prefix-cache", "", kEngineHasIt},
    {"--distributed-executor-backend", "NAME", kRanks, "mp"},
    {"--data-parallel-backend", "NAME", kRanks, "mp"},
    {"--worker-use-ray", "", kRanks},
    {"--use-v2-block-manager", "", "there is one manager of the KV cache"},
    {"--tokenizer-mode", "NAME", "the model's tokenizer is read as its files say", "auto"},
    {"--tokenizer-pool-size", "N", "threads of the one process tokenize", "0"},
    {"--model-impl", "NAME", "models run as the engine's graphs", "auto"},
    {"--uvicorn-log-level", "LEVEL", "--log-level says what is logged"},
    {"--log-requests-level", "N", "--log-requests writes one line for each request", "0"},
    {"--show-time-cost", "", "--log-requests writes the seconds of each request"},
    {"--decode-log-interval", "N", "/metrics has the rates"},
    {"--crash-dump-folder", "DIR", "a failed start leaves its report in the cache folder"},
    {"--root-path", "PATH", kNoPaths},
    {"--fastapi-root-path", "PATH", kNoPaths},
    {"--nccl-port", "N", "--dist-init-addr has the port that nodes meet at"},
    {"--chat-template-content-format", "NAME", "a template gets a text, or a list of parts where there are images",
     "auto"},
    {"--response-role", "NAME", "answers have the role assistant", "assistant"},
    {"--max-logprobs", "N", "a request may ask for up to 20 alternatives of a token", "20"},
    {"--enable-request-id-headers", "", "answers have no header X-Request-Id; their bodies have an id"},
    {"--disable-sliding-window", "", "layers with a window have it at any length; --context-length bounds a text"},
    {"--max-parallel-loading-workers", "N", "weight files are mapped, and their pages copied as they are read"},
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view next = words.substr(0, words.find(' '));
    if (next == word) return true;
    words.remove_prefix(std::min(words.size(), next.size() + 1));
  }
  return false;
}

}  // namespace

void add_ineffective_flags(CommandFlags& add, IneffectiveFlags& given) {
  const std::string group = add.group();
  add.group("");
  std::size_t at = 0;
  for (const IneffectiveFlag& flag : kIneffective) {
    if (std::string_view(flag.type).empty()) {
      add.flag(flag.name, "", given.switches.at(at++));
      continue;
    }
    add.value(flag.name, flag.type, "", [&given, &flag](const std::string&, const std::string& text) {
      if (!has_word(flag.anyway, text))
        given.warnings.push_back(fmt::format("{} {} has no effect: {}", flag.name, text, flag.done));
      return ok_status();
    });
  }
  add.group(group);
}

void warn_about_ineffective_flags(const IneffectiveFlags& given, std::vector<std::string>& warnings) {
  warnings.insert(warnings.end(), given.warnings.begin(), given.warnings.end());
  std::size_t at = 0;
  for (const IneffectiveFlag& flag : kIneffective) {
    if (!std::string_view(flag.type).empty()) continue;
    if (given.switches[at++] && !flag.done.empty())
      warnings.push_back(fmt::format("{} has no effect: {}", flag.name, flag.done));
  }
}

}  // namespace tessera
