#include "tessera/runner/followers/followed_forwards.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/runner/runner_parts.h"
#include "tessera/runner/steps/step_ways.h"

namespace tessera {

FollowedForwards::FollowedForwards(const RunnerParts& parts, LocalForwards& forwards)
    : parts_(parts), forwards_(forwards), collects_at_once_(collects_as_it_runs(parts)) {
  in_flight_.reserve(static_cast<std::size_t>(parts.model.options.max_in_flight));
}

Status FollowedForwards::run(MessageReader& from, RankAnswer& answer) {
  if (const Status read = received_.unpack(from); !read.ok())
    return device_lost(fmt::format("a forward's message cannot be read: {}", read.message()));
  if (received_.decision().adapters && parts_.memory().adapters == nullptr)
    return device_lost("a forward's message asks for graphs with adapters, but this rank serves none");
  const ForwardInputs wanted = received_.inputs({}, {});
  const std::int64_t hidden_rows =
      wanted.hidden_rows.empty() ? wanted.batch.num_tokens() : std::ssize(wanted.hidden_rows);
  const auto size = [](bool is_wanted, std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(is_wanted ? rows * columns : 0);
  };
  const bool has_head = parts_.model.graphs.has_head;
  logits_.resize(size(has_head && received_.wants_logits(), wanted.batch.num_wanted_rows(), parts_.model.vocab_size));
  hidden_states_.resize(size(has_head && received_.wants_hidden(), hidden_rows, parts_.model.hidden_size));
  const ForwardInputs inputs = received_.inputs(logits_, hidden_states_);
  ForwardEnd end{.status = forwards_.check(inputs, forwards_.in_flight())};
  if (end.status.ok()) end = forwards_.submit(inputs, received_.decision());
  answer.replay_failed = end.replay_failed;
  if (collects_at_once_) {
    TRY(end.status);
    return collect_results(answer);
  }
  in_flight_.push_back(end);
  return std::move(end.status);
}

Status FollowedForwards::collect(RankAnswer& answer) {
  if (in_flight_.empty()) return internal_error("no forward is in flight to be collected");
  const ForwardEnd oldest = std::move(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  answer.replay_failed = oldest.replay_failed;
  TRY(oldest.status);
  return collect_results(answer);
}

Status FollowedForwards::collect_results(RankAnswer& answer) {
  TRY(forwards_.collect());
  answer.digest = forwards_.digest();
  return ok_status();
}

Status FollowedForwards::discard() {
  if (in_flight_.empty()) return internal_error("no forward is in flight to be given up");
  const bool runs = in_flight_.back().status.ok();
  in_flight_.pop_back();
  return runs ? forwards_.discard() : ok_status();
}

}  // namespace tessera
