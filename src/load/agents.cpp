#include "tessera/load/agents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

namespace tessera {
namespace {

constexpr double kShareWithSubagents = 0.44;    // share of recorded agents with a sub-agent (vllm#57103)
constexpr std::int64_t kSubagentTurnShare = 4;  // a sub-agent has a quarter of its session's turns

// Divides `total` into `count` random numbers of at least 1. Their sizes are distributed exponentially, because most
// results of tools are short and a few are long.
std::vector<std::int64_t> random_parts(std::int64_t total, std::int64_t count, std::mt19937_64& random) {
  std::exponential_distribution<double> gap(1);
  std::vector<double> ends(static_cast<std::size_t>(count));
  for (double& end : ends) end = gap(random);
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::vector<std::int64_t> parts;
  std::int64_t done = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = ends[static_cast<std::size_t>(i)] / ends.back();
    const auto end = i + 1 + static_cast<std::int64_t>(std::llround(share * static_cast<double>(total - count)));
    parts.push_back(end - done);
    done = end;
  }
  return parts;
}

// Returns how many new prompt tokens a session has in all turns after its first turn. Outputs do not count.
std::int64_t new_tokens(const LoadOptions& options) {
  return options.agents.context - options.agents.first_tokens - (options.agents.turns - 1) * options.output_tokens;
}

// Divides `total` into `count` parts that differ by at most 1.
std::vector<std::int64_t> equal_parts(std::int64_t total, std::int64_t count) {
  std::vector<std::int64_t> parts;
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(total * (i + 1) / count - total * i / count);
  return parts;
}

std::int64_t subagent_turns(std::int64_t turns) { return std::max<std::int64_t>(turns / kSubagentTurnShare, 1); }

// Returns an upper bound of the number of PromptParts in all prompts of a session together. The first prompt of a
// conversation has two parts, and each later prompt has two parts more than the prompt before it. A session has a
// conversation. It may also have a sub-agent with a conversation of its own, and a branch. The branch is one request,
// whose prompt has at most as many parts as the session's last prompt.
std::int64_t most_parts_of_session(std::int64_t turns) {
  const std::int64_t of_subagent = subagent_turns(turns);
  return turns * (turns + 1) + of_subagent * (of_subagent + 1) + 2 * turns;
}

// Builds the requests of all sessions.
class Sessions {
 public:
  explicit Sessions(const LoadOptions& options)
      : options_(options), agents_(options.agents), random_(options.seed), system_(agents_.first_tokens * 3 / 4) {}

  Load make() {
    std::exponential_distribution<double> gap(1);
    double now = 0;
    for (std::int64_t i = 0; i < agents_.sessions; ++i) {
      add_session(now);
      now += options_.arrivals == Arrivals::kPoisson ? gap(random_) : 1;
    }
    return std::move(load_);
  }

 private:
  using Prompt = std::vector<PromptPart>;

  // Adds a request with this prompt and returns the request's index. `known` becomes LoadRequest::known_tokens, and
  // `wait_s` becomes LoadRequest::arrival_s.
  std::size_t add(Prompt prompt, std::int64_t known, std::optional<std::size_t> after, double wait_s) {
    LoadRequest request{.arrival_s = wait_s, .after = after, .output_tokens = options_.output_tokens};
    for (const PromptPart& part : prompt) request.input_tokens += part.tokens;
    request.known_tokens = known;
    request.parts = std::move(prompt);
    load_.requests.push_back(std::move(request));
    return load_.requests.size() - 1;
  }
  PromptPart drawn(std::int64_t tokens) { return {.tokens = tokens, .text = ++texts_}; }
  PromptPart output_of(std::size_t request) {
    return {.tokens = load_.requests[request].output_tokens, .text = ++texts_, .output_of = request};
  }
  // Returns the prompt that begins a conversation: the common system prompt and a task.
  Prompt first_prompt() { return {{.tokens = system_, .text = kSystemText}, drawn(agents_.first_tokens - system_)}; }
  // Returns the prompt of the turn after `request`: the prompt and output of `request`, and the result of a tool.
  Prompt continued(std::size_t request, std::int64_t result) {
    Prompt prompt = load_.requests[request].parts;
    prompt.push_back(output_of(request));
    prompt.push_back(drawn(result));
    return prompt;
  }
  // Returns the length of the tool's result for each of `turns` turns. The sum of the lengths is `total` tokens.
  std::vector<std::int64_t> results_of(std::int64_t total, std::int64_t turns) {
    return agents_.equal_results ? equal_parts(total, turns) : random_parts(total, turns, random_);
  }
  std::int64_t tokens_after(std::size_t request) const {
    return load_.requests[request].input_tokens + load_.requests[request].output_tokens;
  }
  // Adds the next turn of the conversation to which request `previous` belongs. The turn is sent after the end of
  // request `after`. `result` is the length of the tool's result.
  std::size_t add_turn(std::size_t previous, std::size_t after, std::int64_t result) {
    return add(continued(previous, result), tokens_after(previous), after, agents_.tool_seconds);
  }

  void add_session(double arrival_s) {
    const std::int64_t known = load_.requests.empty() ? 0 : system_;
    const std::vector<std::int64_t> results = results_of(new_tokens(options_), agents_.turns - 1);
    const bool has_subagent = std::bernoulli_distribution(kShareWithSubagents)(random_);
    const std::int64_t turn_of_subagent = std::uniform_int_distribution<std::int64_t>(1, agents_.turns - 1)(random_);
    std::size_t last = add(first_prompt(), known, std::nullopt, arrival_s);
    for (std::int64_t turn = 1; turn < agents_.turns; ++turn) {
      const std::int64_t result = results[static_cast<std::size_t>(turn - 1)];
      std::size_t after = last;
      if (has_subagent && turn == turn_of_subagent) {
        after = add_subagent(last);
        add_turn(last, last, result);  // the branch
      }
      last = add_turn(last, after, result);
    }
  }

  // Adds a sub-agent that begins when request `after` has ended. Returns the index of the sub-agent's last request.
  std::size_t add_subagent(std::size_t after) {
    const std::int64_t turns = subagent_turns(agents_.turns);
    const std::int64_t mean = new_tokens(options_) / (agents_.turns - 1);
    const std::vector<std::int64_t> results = results_of(mean * (turns - 1), turns - 1);
    std::size_t last = add(first_prompt(), system_, after, agents_.tool_seconds);
    for (std::int64_t turn = 1; turn < turns; ++turn)
      last = add_turn(last, last, results[static_cast<std::size_t>(turn - 1)]);
    return last;
  }

  static constexpr std::uint64_t kSystemText = 0;

  const LoadOptions& options_;
  const AgentOptions& agents_;
  std::mt19937_64 random_;
  std::int64_t system_;  // tokens of the system prompt
  std::uint64_t texts_ = kSystemText;
  Load load_;
};

}  // namespace

Result<Load> agent_load(const LoadOptions& options) {
  const AgentOptions& agents = options.agents;
  const std::int64_t least = agents.first_tokens + (agents.turns - 1) * (options.output_tokens + 1);
  if (agents.context < least) {
    return invalid_argument(fmt::format(
        "--agent-context: {} is not accepted; {} turns that begin with {} tokens and give {} each need at least {}",
        agents.context, agents.turns, agents.first_tokens, options.output_tokens, least));
  }
  const std::int64_t most = kMostParts / most_parts_of_session(agents.turns);
  if (agents.sessions > most) {
    return invalid_argument(fmt::format("--agents: {} is not accepted; with {} turns each, at most {} are",
                                        agents.sessions, agents.turns, most));
  }
  return Sessions(options).make();
}

void forget_unreported_outputs(Load& load, std::span<const RequestRecord> records) {
  for (LoadRequest& request : load.requests) {
    // Subtracts only tokens of the last output in the prompt. All earlier outputs were already in an earlier prompt,
    // with reported or random ids, so a cache can have them.
    const auto last = std::find_if(request.parts.rbegin(), request.parts.rend(),
                                   [](const PromptPart& part) { return part.output_of.has_value(); });
    if (last == request.parts.rend() || request.known_tokens == 0) continue;
    const std::int64_t reported = std::ssize(records[*last->output_of].output_ids);
    request.known_tokens -= std::max<std::int64_t>(last->tokens - reported, 0);
  }
}

std::vector<PromptLatency> prompt_latencies(const Load& load, std::span<const RequestRecord> records, int ranges) {
  std::int64_t longest = 0;
  for (const RequestRecord& record : records) longest = std::max(longest, record.input_tokens);
  const std::int64_t size = longest / ranges + 1;
  std::vector<PromptLatency> latencies;
  for (int r = 0; r < ranges; ++r) {
    PromptLatency range{.least_tokens = r * size, .end_tokens = (r + 1) * size};
    std::vector<double> ttft;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const RequestRecord& record = records[i];
      const bool within = record.input_tokens >= range.least_tokens && record.input_tokens < range.end_tokens;
      if (!within || !record.failure.empty()) continue;
      ttft.push_back(record.ttft_ms());
      range.new_tokens += static_cast<double>(record.input_tokens - load.requests[i].known_tokens);
    }
    if (ttft.empty()) continue;
    range.requests = std::ssize(ttft);
    range.new_tokens /= static_cast<double>(range.requests);
    range.ttft = distribution(std::move(ttft));
    latencies.push_back(std::move(range));
  }
  return latencies;
}

}  // namespace tessera
