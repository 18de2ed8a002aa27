#include "tessera/engine/schedule/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace tessera {
namespace {

// Returns a token that is practically unique for each pair of `what` and `position`.
TokenId token_of(std::uint64_t what, std::int64_t position) {
  std::uint64_t x = (what + 1) * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(position);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ULL;
  return TokenId(static_cast<std::int32_t>((x >> 20) & 0x7fffffff));
}

class Run {
 public:
  Run(std::span<const SimulatedRequest> requests, const SimulationOptions& options)
      : requests_(requests),
        options_(options),
        scheduler_(
            options.scheduler, options.cache,
            [this](std::int64_t tokens) { return split_tokens(tokens, options_.table); },
            [this] { return filling_tokens(options_.table); }) {}

  Result<Simulation> all() {
    ScheduledBatch step;
    while (next_ < requests_.size() || !scheduler_.idle()) {
      if (scheduler_.idle()) now_s_ = std::max(now_s_, requests_[next_].arrival_s);
      while (next_ < requests_.size() && requests_[next_].arrival_s <= now_s_) arrive();
      scheduler_.next(step);
      if (step.entries.empty()) return internal_error("simulation: a step without tokens");
      forward(step);
    }
    done_.end_s = now_s_;
    scheduler_.report(done_.stats);
    return std::move(done_);
  }

 private:
  void arrive() {
    const SimulatedRequest& request = requests_[next_];
    const auto index = static_cast<std::int64_t>(next_);
    auto sequence = std::make_unique<Sequence>();
    sequence->id = RequestId(index);
    sequence->order = index;
    for (std::int64_t i = 0; i < request.prompt_tokens; ++i) {
      const auto block = static_cast<std::size_t>(i / options_.block_tokens);
      // token_of() gets an even number for a token in a block, and an odd number for a token outside the request's
      // blocks. The two kinds of tokens therefore differ.
      sequence->request.prompt.push_back(
          block < request.blocks.size()
              ? token_of(2 * static_cast<std::uint64_t>(request.blocks[block]), i % options_.block_tokens)
              : token_of(2 * next_ + 1, i));
    }
    sequence->tokens = sequence->request.prompt;
    sequence->request.stop.max_new_tokens = request.output_tokens;
    const auto share_until = [&](std::int64_t i) {
      return std::floor(static_cast<double>(i) * options_.prompt_logprobs);
    };
    if (share_until(index + 1) > share_until(index)) sequence->request.logprobs.prompt = 0;
    scheduler_.add(std::move(sequence));
    ++next_;
  }

  void forward(const ScheduledBatch& step) {
    const BatchShape shape = shape_of(step.batch);
    const Decision decision = dispatch(shape, options_.table);
    const bool is_decode = step.batch.is_decode_with_drafts();
    done_.counters.add(decision, shape.tokens, is_decode);
    if (!is_decode) ++done_.forward_tokens[shape.tokens];
    count_prompts(step, decision);
    const double ms = ms_of(decision.runner, decision.size);
    now_s_ += 1e-3 * ms;
    if (!is_decode) done_.prefill_ms += ms;
    if (decision.runner == RunnerKind::kPrefill) {
      done_.replay_ms += ms;
      done_.padding_ms += ms - ms_of(decision.runner, shape.tokens);
    }
    finish(step);
  }

  void count_prompts(const ScheduledBatch& step, const Decision& decision) {
    std::int64_t prompt_tokens = 0;
    bool decodes = false;
    for (const ScheduledBatch::Entry& entry : step.entries) {
      if (entry.sequence->decodes())
        decodes = true;
      else
        prompt_tokens += entry.new_tokens;
    }
    done_.prompt_tokens += prompt_tokens;
    if (decodes && prompt_tokens > 0) ++done_.mixed_forwards;
    if (decision.runner != RunnerKind::kEager)
      done_.replayed_prompt_tokens += prompt_tokens;
    else if (prompt_tokens > 0)
      done_.eager_prompt_tokens[decision.reason] += prompt_tokens;
  }

  double ms_of(RunnerKind runner, std::int64_t size) const {
    return options_.times == nullptr ? prior_ms(size) : options_.times->ms(runner, size).value_or(prior_ms(size));
  }

  void finish(const ScheduledBatch& step) {
    scheduler_.mark_submitted(step);
    for (const ScheduledBatch::Entry& entry : step.entries) {
      const RequestId id = entry.sequence->id;
      if (entry.row >= 0)
        Scheduler::settle(entry, token_of(2 * static_cast<std::uint64_t>(id.value()) + 1, entry.next_token));
      if (entry.sequence->is_done()) scheduler_.remove(id, /*failed=*/false);
    }
  }

  std::span<const SimulatedRequest> requests_;
  const SimulationOptions& options_;
  Scheduler scheduler_;
  std::size_t next_ = 0;
  double now_s_ = 0;
  Simulation done_;
};

Status check(std::span<const SimulatedRequest> requests, const SimulationOptions& options) {
  const std::int64_t room = CacheManager(options.cache).max_tokens();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const SimulatedRequest& request = requests[i];
    if (request.prompt_tokens < 1 || request.output_tokens < 1) {
      return invalid_argument(
          fmt::format("simulation: request {} has {} prompt and {} output tokens; 1 or more are "
                      "accepted of each",
                      i, request.prompt_tokens, request.output_tokens));
    }
    if (request.prompt_tokens + request.output_tokens > room) {
      return invalid_argument(fmt::format("simulation: request {} has {} tokens, and the KV cache holds {}", i,
                                          request.prompt_tokens + request.output_tokens, room));
    }
    if (i > 0 && request.arrival_s < requests[i - 1].arrival_s)
      return invalid_argument(fmt::format("simulation: request {} arrives before the one before it", i));
  }
  return ok_status();
}

}  // namespace

double prior_ms(std::int64_t tokens) { return 0.02 * prior_token_cost(tokens); }

PaddingWaste Simulation::prefill_waste() const {
  PaddingWaste waste;
  double tokens = 0;
  double padding = 0;
  double forwards = 0;
  for (const auto& [key, count] : counters.by_key) {
    if (key.runner != RunnerKind::kPrefill) continue;
    tokens += static_cast<double>(count.tokens);
    padding += static_cast<double>(count.padding);
    forwards += static_cast<double>(count.forwards);
    if (key.reason == Reason::kExactSize) waste.exact += static_cast<double>(count.forwards);
  }
  if (forwards == 0) return waste;
  waste.tokens = padding / (tokens + padding);
  waste.time = padding_ms / replay_ms;
  waste.exact /= forwards;
  double all = 0;
  for (const auto& [count, times] : forward_tokens) all += static_cast<double>(times);
  // The quotient may exceed 1, because pure decodes on the prefill runner count in `forwards`, but not in `all`.
  waste.served = std::min(forwards / all, 1.0);
  return waste;
}

Result<Simulation> simulate(std::span<const SimulatedRequest> requests, const SimulationOptions& options) {
  TRY(check(requests, options));
  return Run(requests, options).all();
}

}  // namespace tessera
