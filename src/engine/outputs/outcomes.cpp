#include "tessera/engine/outputs/outcomes.h"

#include <memory>
#include <utility>

namespace tessera {

void Outcomes::report(RequestEvent event) {
  const RequestId id = event.request;
  const FinishReason reason = event.finish;
  events_.push_back(std::move(event));
  if (reason != FinishReason::kNone) end(id, reason);
}

void Outcomes::end(RequestId id, FinishReason reason) {
  const std::unique_ptr<Sequence> sequence = scheduler_.remove(id, reason == FinishReason::kError);
  if (sequence == nullptr) return;
  flights_.forget(*sequence);
  Completion& done = sequence->result;
  done.output_ids.assign(sequence->tokens.begin() + sequence->prompt_tokens(),
                         sequence->tokens.end() - sequence->pending);
  done.finish = reason;
  done.prompt_tokens = sequence->prompt_tokens();
  done.seed = sequence->seed;
  done.total_ms = sequence->elapsed_ms();
  completions_.emplace(id, std::move(done));
}

void Outcomes::end_expired() {
  expired_.clear();
  scheduler_.find_expired(Sequence::Clock::now(), expired_);
  for (const RequestId id : expired_) {
    report({.request = id,
            .finish = FinishReason::kTimeout,
            .error = cancelled("the request has taken longer than its timeout_s")});
  }
}

void Outcomes::fail(const ScheduledBatch& batch, const Status& error) {
  for (const ScheduledBatch::Entry& entry : batch.entries) {
    if (entry.sequence == nullptr) continue;
    report({.request = entry.sequence->id, .finish = FinishReason::kError, .error = error});
  }
  scheduler_.forget_results(batch);
  // Drops all cached pages, because the prefix cache receives a forward's pages when the forward is submitted, and
  // nothing records which of them a failed forward left undefined. This may be costly, but failures are rare.
  scheduler_.flush_prefixes();
}

std::optional<Completion> Outcomes::take(RequestId id) {
  const auto it = completions_.find(id);
  if (it == completions_.end()) return std::nullopt;
  Completion done = std::move(it->second);
  completions_.erase(it);
  return done;
}

}  // namespace tessera
