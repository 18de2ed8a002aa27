#include "tessera/cli/bench/parse_bench_serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace tessera::cli {
namespace {

constexpr std::int64_t kMostTurns = 1024;  // this limits memory, because a turn stores all parts of earlier turns
constexpr double kMostToolSeconds = 86400;
constexpr std::int64_t kAgentOutputTokens = 444;  // tokens per turn, as vLLM reports for recorded agents (vllm#57103)
constexpr int kMostAdapters = 1024;               // the maximum number of names in --lora-name

// Calls `take` with each item of a list such as "a,b,c".
Status for_each_item(const std::string& text, const std::function<Status(const std::string&)>& take) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    TRY(take(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return ok_status();
}

Status take_rate(const std::string& flag, const std::string& item, std::vector<double>& rates) {
  const Result<double> rate = item == "inf" ? Result<double>(INFINITY) : parse_number(flag, item);
  if (!rate.ok() || *rate <= 0)
    return invalid_argument(
        fmt::format("{}: \"{}\" is not accepted; numbers above 0 and inf are, like 2,4,inf", flag, item));
  rates.push_back(*rate);
  return ok_status();
}

Status misplaced(const std::string& flag, std::string_view with) {
  return invalid_argument(fmt::format("{} does not go with {}", flag, with));
}

}  // namespace

CommandFlags::Take BenchServeFlags::noting(Goes goes, CommandFlags::Take take) {
  return [this, goes, take = std::move(take)](const std::string& flag, const std::string& text) {
    given_.emplace_back(goes, flag);
    return take(flag, text);
  };
}

std::string BenchServeFlags::given(Goes goes) const {
  const auto found = std::find_if(given_.begin(), given_.end(), [&](const auto& flag) { return flag.first == goes; });
  return found == given_.end() ? "" : found->second;
}

void BenchServeFlags::add_integer(CommandFlags& add, const std::string& name, const std::string& help, Goes goes,
                                  std::int64_t& to, std::int64_t least, std::int64_t most) {
  add.value(name, "N", help, noting(goes, [&to, least, most](const std::string& flag, const std::string& text) {
              to = TRY(parse_integer(flag, text, {least, most}));
              return ok_status();
            }));
}

void BenchServeFlags::add_text(CommandFlags& add, const std::string& name, const std::string& type,
                               const std::string& help, Goes goes, std::string& to) {
  add.value(name, type, help, noting(goes, [&to](const std::string& flag, const std::string& text) {
              if (text.empty()) return invalid_argument(fmt::format("{}: the value is empty", flag));
              to = text;
              return ok_status();
            }));
}

void BenchServeFlags::add(CommandFlags& add) {
  add.group("Load of bench serve");
  add_load_flags(add);
  add.group("Server of bench serve (without --url: of this process, with the model below)");
  add_server_flags(add);
}

void BenchServeFlags::add_load_flags(CommandFlags& add) {
  LoadOptions& load = options_.load;
  add_integer(add, "--num-prompts", "requests of a run (100)", Goes::kWithoutAgents, load.num_prompts);
  add.value("--request-rate", "LIST",
            "arrivals a second on average (agents: of sessions), a run each: 2,4,inf (inf; a trace's own)",
            noting(Goes::kAlways, [this](const std::string& flag, const std::string& text) {
              return for_each_item(
                  text, [&](const std::string& item) { return take_rate(flag, item, options_.request_rates); });
            }));
  add.value("--arrivals", "poisson|uniform", "how random requests, or sessions of agents, come (poisson)",
            noting(Goes::kWithDrawn, [&load](const std::string& flag, const std::string& text) {
              static constexpr std::array<std::string_view, 2> kNames = {"poisson", "uniform"};
              load.arrivals = static_cast<Arrivals>(TRY(parse_choice(flag, text, kNames)));
              return ok_status();
            }));
  add_integer(add, "--input-len", "tokens of a random prompt (512)", Goes::kWithRandom, load.input_tokens);
  add.value("--output-len", "N", "tokens of its output (128; of agents 444)",
            noting(Goes::kWithDrawn, [this](const std::string& flag, const std::string& text) {
              output_tokens_ = TRY(parse_integer(flag, text, {1, kMostCount}));
              return ok_status();
            }));
  add.value("--random-range-ratio", "X", "lengths from X times those on, 0 to 1 (1)",
            noting(Goes::kWithRandom, [&load](const std::string& flag, const std::string& text) {
              load.range_ratio = TRY(parse_number(flag, text));
              if (load.range_ratio >= 0 && load.range_ratio <= 1) return ok_status();
              return invalid_argument(fmt::format("{}: {} is not accepted; 0 to 1 is", flag, text));
            }));
  add_text(add, "--trace", "FILE", "instead: arrivals and lengths of Azure's CSV or Mooncake's JSON lines",
           Goes::kWithoutAgents, load.trace);
  add_agent_flags(add);
  add_adapter_flags(add);
  add_integer(add, "--max-concurrency", "most requests under way (any number)", Goes::kAlways,
              options_.max_concurrency);
  add_integer(add, "--warmup", "requests before each run that do not count (4)", Goes::kAlways, options_.warmup, 0);
  add.value("--seed", "N", "of arrivals, lengths and prompts (0); another one for a server that was measured before",
            noting(Goes::kAlways, [&load](const std::string& flag, const std::string& text) {
              load.seed = static_cast<std::uint64_t>(TRY(parse_integer(flag, text, {0})));
              return ok_status();
            }));
}

void BenchServeFlags::add_agent_flags(CommandFlags& add) {
  AgentOptions& agents = options_.load.agents;
  add_integer(add, "--agents", "instead: sessions of coding agents, whose turns send the whole conversation again",
              Goes::kAlways, agents.sessions);
  add_integer(add, "--agent-turns", "turns of a session (43)", Goes::kWithAgents, agents.turns, 2, kMostTurns);
  add_integer(add, "--agent-first-len", "tokens of a session's first prompt; all share three quarters of it (16384)",
              Goes::kWithAgents, agents.first_tokens, 4);
  add_integer(add, "--agent-context", "tokens of a session's last prompt (120000)", Goes::kWithAgents, agents.context);
  add.value("--agent-results", "drawn|equal", "lengths of tools' results (drawn)",
            noting(Goes::kWithAgents, [&agents](const std::string& flag, const std::string& text) {
              static constexpr std::array<std::string_view, 2> kNames = {"drawn", "equal"};
              agents.equal_results = TRY(parse_choice(flag, text, kNames)) == 1;
              return ok_status();
            }));
  add.value("--agent-tool-seconds", "X", "from the end of an answer to the next turn (0)",
            noting(Goes::kWithAgents, [&agents](const std::string& flag, const std::string& text) {
              agents.tool_seconds = TRY(parse_number(flag, text));
              if (agents.tool_seconds >= 0 && agents.tool_seconds <= kMostToolSeconds) return ok_status();
              return invalid_argument(fmt::format("{}: {} is not accepted; 0 to {} is", flag, text, kMostToolSeconds));
            }));
}

void BenchServeFlags::add_adapter_flags(CommandFlags& add) {
  LoadOptions& load = options_.load;
  add.values("--lora-name", "NAME",
             "adapters that requests name, one each (agents: one a session); the model's own name stands for none",
             noting(Goes::kAlways,
                    [&load](const std::string& flag, const std::string& text) -> Status {
                      if (text.empty()) return invalid_argument(fmt::format("{}: a name is empty", flag));
                      load.adapters.push_back(text);
                      return ok_status();
                    }),
             kMostAdapters);
  add.value("--lora-request-distribution", "uniform|distinct|skewed",
            "which adapter: any, each in turn, or the first ones most often (uniform)",
            noting(Goes::kWithAdapters, [&load](const std::string& flag, const std::string& text) {
              load.adapter_draw = static_cast<AdapterDraw>(TRY(parse_choice(flag, text, kAdapterDraws)));
              return ok_status();
            }));
  add.value("--lora-zipf-alpha", "X", "skewed: the probability of adapter i is in proportion to 1 / i^X (1.5)",
            noting(Goes::kWithSkew, [&load](const std::string& flag, const std::string& text) {
              load.zipf_exponent = TRY(parse_number(flag, text));
              if (load.zipf_exponent >= 0) return ok_status();
              return invalid_argument(fmt::format("{}: {} is not accepted; 0 and more is", flag, text));
            }));
}

void BenchServeFlags::add_server_flags(CommandFlags& add) {
  add_text(add, "--url", "URL",
           "of a server of OpenAI's protocol, like http://127.0.0.1:30000; https trusts SSL_CERT_FILE", Goes::kAlways,
           options_.url);
  add_text(add, "--api-key", "KEY", "its key", Goes::kWithUrl, options_.api_key);
  add.keep_secret("the command line");
  add_text(add, "--served-model-name", "NAME", "its model (the first that it names)", Goes::kWithUrl,
           options_.served_model_name);
  add_integer(add, "--vocab-size", "its token ids are below (32000)", Goes::kWithUrl, options_.vocab_size);
  add.value("--graphs", "LIST",
            "an engine each, without graphs and with: off,on,off,on; from two of each on they are compared",
            noting(Goes::kWithModel, [this](const std::string& flag, const std::string& text) {
              return for_each_item(text, [&](const std::string& item) {
                static constexpr std::array<std::string_view, 2> kNames = {"off", "on"};
                options_.graphs.push_back(TRY(parse_choice(flag, item, kNames)) == 1);
                return ok_status();
              });
            }));
  add_text(add, "--profile", "FILE", "where the engine's time goes: tables, and a timeline in FILE", Goes::kWithModel,
           options_.profile);
}

Status BenchServeFlags::check_load() const {
  const bool has_agents = options_.load.agents.sessions > 0;
  if (const std::string flag = given(Goes::kWithoutAgents); !flag.empty() && has_agents)
    return misplaced(flag, "--agents");
  if (const std::string flag = given(Goes::kWithAgents); !flag.empty() && !has_agents)
    return invalid_argument(fmt::format("{} has no effect without --agents", flag));
  for (const Goes goes : {Goes::kWithDrawn, Goes::kWithRandom})
    if (const std::string flag = given(goes); !flag.empty() && !options_.load.trace.empty())
      return misplaced(flag, "--trace, whose requests have their own");
  if (const std::string flag = given(Goes::kWithRandom); !flag.empty() && has_agents)
    return misplaced(flag, "--agents, whose prompts have their own lengths");
  if (const std::string flag = given(Goes::kWithAdapters); !flag.empty() && options_.load.adapters.empty())
    return invalid_argument(fmt::format("{} has no effect without --lora-name", flag));
  if (const std::string flag = given(Goes::kWithSkew);
      !flag.empty() && options_.load.adapter_draw != AdapterDraw::kSkewed)
    return invalid_argument(
        fmt::format("{} has no effect without --lora-name and --lora-request-distribution skewed", flag));
  return ok_status();
}

Result<BenchServeOptions> BenchServeFlags::finish(const EngineOptions& engine, bool json) {
  TRY(check_load());
  if (has_url()) {
    if (const std::string flag = given(Goes::kWithModel); !flag.empty()) return misplaced(flag, "--url");
    if (!engine.model_path.empty()) return misplaced("--model-path", "--url, whose server has its model");
  } else if (const std::string flag = given(Goes::kWithUrl); !flag.empty()) {
    return misplaced(flag, "a server of this process; --url names another");
  }
  if (options_.api_key.find_first_of("\r\n") != std::string::npos)
    return invalid_argument("--api-key: a line break is not accepted; one line is");
  LoadOptions& load = options_.load;
  load.output_tokens = output_tokens_.value_or(load.agents.sessions > 0 ? kAgentOutputTokens : load.output_tokens);
  options_.engine = engine;
  options_.json = json;
  return options_;
}

}  // namespace tessera::cli
