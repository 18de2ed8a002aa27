#include "tessera/load/load.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tessera/load/agents.h"
#include "tessera/load/trace.h"

namespace tessera {
namespace {

// prompt_ids() makes the random tokens of a text from a number. This number is the index of a request, the `text` of a
// PromptPart, or the id of a trace's block. kIndexBit marks indices and kPartBit marks parts, so that two kinds of text
// never share a number. Block ids have neither bit, because traces count their blocks from 0.
constexpr std::uint64_t kIndexBit = std::uint64_t{1} << 63;
constexpr std::uint64_t kPartBit = std::uint64_t{1} << 62;

// Returns a pseudo-random number made from a state by splitmix64.
std::uint64_t mixed(std::uint64_t state) {
  state += 0x9e3779b97f4a7c15;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

Load random_load(const LoadOptions& options) {
  std::mt19937_64 random(options.seed);
  const auto length = [&](std::int64_t longest) {
    const auto shortest = static_cast<std::int64_t>(options.range_ratio * static_cast<double>(longest));
    return std::uniform_int_distribution<std::int64_t>(std::max<std::int64_t>(shortest, 1), longest)(random);
  };
  std::exponential_distribution<double> gap(1);
  Load load;
  double now = 0;
  for (std::int64_t i = 0; i < options.num_prompts; ++i) {
    LoadRequest request{.arrival_s = now};
    request.input_tokens = length(options.input_tokens);
    request.output_tokens = length(options.output_tokens);
    load.requests.push_back(std::move(request));
    now += options.arrivals == Arrivals::kPoisson ? gap(random) : 1;
  }
  return load;
}

// Gives each request an adapter. The requests' arrivals and lengths are the same as in a load without adapters. A
// request that follows another one (LoadRequest::after) gets the same adapter, because a session keeps its model.
// Adapters share no keys and values, so the first request with an adapter has no known_tokens.
void draw_adapters(Load& load, const LoadOptions& options) {
  if (options.adapters.empty()) return;
  std::vector<double> weights(options.adapters.size(), 1.0);
  if (options.adapter_draw == AdapterDraw::kSkewed)
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] = std::pow(static_cast<double>(i + 1), -options.zipf_exponent);
  std::discrete_distribution<std::size_t> draw(weights.begin(), weights.end());
  std::mt19937_64 random(mixed(options.seed));
  std::set<std::string> begun;
  std::size_t drawn = 0;
  for (LoadRequest& request : load.requests) {
    if (request.after) {
      request.adapter = load.requests[*request.after].adapter;
      continue;
    }
    const bool in_turn = options.adapter_draw == AdapterDraw::kInTurn;
    request.adapter = options.adapters[in_turn ? drawn++ % options.adapters.size() : draw(random)];
    if (begun.insert(request.adapter).second) request.known_tokens = 0;
  }
}

Result<Load> recorded_load(const LoadOptions& options) {
  Load load{.requests = TRY(read_trace(options.trace, options.num_prompts)), .recorded = true};
  std::stable_sort(load.requests.begin(), load.requests.end(),
                   [](const LoadRequest& a, const LoadRequest& b) { return a.arrival_s < b.arrival_s; });
  const double first = load.requests.front().arrival_s;
  for (LoadRequest& request : load.requests) request.arrival_s -= first;
  return load;
}

}  // namespace

Result<Load> make_load(const LoadOptions& options) {
  Load load;
  if (options.agents.sessions > 0) {
    load = TRY(agent_load(options));
  } else {
    load = options.trace.empty() ? random_load(options) : TRY(recorded_load(options));
  }
  draw_adapters(load, options);
  return load;
}

Result<std::vector<double>> arrivals_at(const Load& load, double per_second) {
  std::vector<double> times(load.requests.size(), 0.0);
  double rate = 1;
  if (load.recorded && load.requests.size() > 1 && !std::isinf(per_second)) {
    const double span = load.requests.back().arrival_s;
    if (span <= 0) {
      return invalid_argument(
          "all requests that were taken from the trace came at one moment; accepted are an infinite rate, or more "
          "requests");
    }
    rate = static_cast<double>(load.requests.size() - 1) / span;
  }
  for (std::size_t i = 0; i < times.size(); ++i) {
    const LoadRequest& request = load.requests[i];
    times[i] = request.after ? request.arrival_s : request.arrival_s * rate / per_second;
  }
  return times;
}

std::int64_t clip_to_context(Load& load, std::int64_t context) {
  std::int64_t clipped = 0;
  for (LoadRequest& request : load.requests) {
    const std::int64_t output = std::min(request.output_tokens, context - 1);
    const std::int64_t input = std::min(request.input_tokens, context - output);
    clipped += output < request.output_tokens || input < request.input_tokens;
    request.output_tokens = output;
    request.input_tokens = input;
    request.known_tokens = std::min(request.known_tokens, input);
  }
  return clipped;
}

std::vector<std::int64_t> prompt_ids(const LoadRequest& request, std::size_t index, const PromptSource& source,
                                     std::span<const RequestRecord> records) {
  const std::uint64_t salt = mixed(mixed(source.seed) ^ source.run);
  const auto drawn = [&](std::uint64_t text, std::int64_t position) {
    const std::uint64_t number = mixed(mixed(salt ^ mixed(text)) + static_cast<std::uint64_t>(position));
    return static_cast<std::int64_t>(number % static_cast<std::uint64_t>(source.vocab_size));
  };
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(request.input_tokens));
  for (const PromptPart& part : request.parts) {
    const bool has_output = part.output_of && *part.output_of < records.size();
    const std::span<const std::int64_t> output =
        has_output ? std::span(records[*part.output_of].output_ids) : std::span<const std::int64_t>();
    for (std::int64_t i = 0; i < part.tokens; ++i)
      ids.push_back(i < std::ssize(output) ? output[static_cast<std::size_t>(i)] : drawn(kPartBit | part.text, i));
  }
  if (!request.parts.empty()) {
    ids.resize(static_cast<std::size_t>(request.input_tokens));  // fewer ids if the prompt was clipped
    return ids;
  }
  for (std::int64_t i = 0; i < request.input_tokens; ++i) {
    const auto block = static_cast<std::size_t>(i / kBlockTokens);
    std::uint64_t text = kIndexBit | index;  // a token outside of blocks depends on the request's index
    std::int64_t position = i;
    if (block < request.blocks.size()) {
      text = static_cast<std::uint64_t>(request.blocks[block]);
      position = i % kBlockTokens;
    }
    ids.push_back(drawn(text, position));
  }
  return ids;
}

}  // namespace tessera
