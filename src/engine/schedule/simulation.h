// Runs the scheduler on recorded requests, in virtual time and without a model. Reports which forwards result and how
// they are dispatched. It decides nothing itself: it calls the engine's Scheduler, split_tokens(), filling_tokens() and
// dispatch().
//
//   Simulation s = TRY(simulate(requests, {.scheduler = {.limits = {.max_tokens = 8192}}, .table = table}));
//   s.replayed_prompt_tokens, s.eager_prompt_tokens[Reason::kAboveLargestSize], s.forward_tokens
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schedule/scheduler.h"
#include "tessera/piecewise/auto_ladder.h"
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/forward_counters.h"

namespace tessera {

struct SimulatedRequest {
  double arrival_s = 0;
  std::int64_t prompt_tokens = 1;
  std::int64_t output_tokens = 1;
  // One number for each block of the prompt. A block has `block_tokens` tokens. Blocks with equal numbers have equal
  // tokens. If the list is empty, the prompt shares no prefix with any other prompt.
  std::vector<std::int64_t> blocks{};
};

struct SimulationOptions {
  SchedulerOptions scheduler{};
  DispatchTable table{};
  const CostTable* times = nullptr;  // times of forwards; prior_ms() gives times that are not in the table
  CacheOptions cache = paged_cache((std::int64_t{1} << 20) / 16 + 1, 16);
  std::int64_t block_tokens = 512;
  double prompt_logprobs = 0;  // share of requests that want log-probabilities of their prompt; 0 to 1
};

// Returns the assumed time of a forward that was not measured: prior_token_cost(), scaled to 50 000 tokens a second.
double prior_ms(std::int64_t tokens);

struct Simulation {
  ForwardCounters counters;
  // A histogram of the forwards that are not pure decodes. The key is the number of tokens, and the value is the number
  // of forwards.
  std::map<std::int64_t, std::int64_t> forward_tokens;
  // The numbers of prompt tokens in all forwards, in replayed forwards and, by reason, in eager forwards.
  std::int64_t prompt_tokens = 0;
  std::int64_t replayed_prompt_tokens = 0;
  std::map<Reason, std::int64_t> eager_prompt_tokens;
  std::int64_t mixed_forwards = 0;  // number of forwards with both prompts and decodes
  // The time of prefill replays, and the time that they would save if each had a graph of its exact size.
  double replay_ms = 0;
  double padding_ms = 0;
  double prefill_ms = 0;  // time of all forwards that are not pure decodes
  double end_s = 0;       // when the last request was done
  EngineStats stats;      // has only the members that Scheduler::report() writes

  PaddingWaste prefill_waste() const;
};

// Runs the simulation. `requests` are ordered by arrival. Returns kInvalidArgument for a length below 1, for times out
// of order, and for a request that does not fit into the pages.
Result<Simulation> simulate(std::span<const SimulatedRequest> requests, const SimulationOptions& options);

}  // namespace tessera
