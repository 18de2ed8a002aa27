#include "tessera/engine/lockstep.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/hash.h"
#include "tessera/ops/introduction.h"

namespace tessera {

std::shared_ptr<Lockstep> Lockstep::create(int ranks, std::chrono::milliseconds limit) {
  return std::shared_ptr<Lockstep>(new Lockstep(Communicator::create_group(ranks, limit)));
}

Lockstep::Lockstep(std::vector<std::unique_ptr<Communicator>> group)
    : group_(std::move(group)), joined_(group_.size()), calls_(group_.size()) {}

Status Lockstep::health() const {
  const Status status = group_.front()->status();
  return status.ok() ? status : device_lost(status.message());
}

Status Lockstep::agree(int rank, std::span<const std::int64_t> prefill_sizes,
                       std::span<const std::int64_t> decode_sizes) {
  Hasher sizes;
  for (const std::span<const std::int64_t> ladder : {prefill_sizes, decode_sizes}) {
    sizes.add(ladder.size());
    for (const std::int64_t size : ladder) sizes.add(size);
  }
  const Hash128 own = sizes.finish();
  const std::vector<Hash128> all = TRY(introduce(communicator(rank), own));
  if (std::ranges::all_of(all, [&](const Hash128& other) { return other == own; })) return ok_status();
  return failed_precondition(
      fmt::format("the ranks have captured, or have memory for, different sizes of graphs; rank {} has {} for prefills "
                  "and {} for decodes",
                  rank, prefill_sizes.size(), decode_sizes.size()));
}

void Lockstep::begin(int rank) {
  const std::int64_t forward = ++joined_[static_cast<std::size_t>(rank)];
  std::int64_t begun = forward - 1;
  if (!begun_.compare_exchange_strong(begun, forward)) return;  // another rank was first
  call_others(rank);
}

void Lockstep::fail(int rank, std::string_view reason) {
  communicator(rank).abort(reason);
  call_others(rank);
}

void Lockstep::call_others(int rank) {
  const std::lock_guard lock(mutex_);
  for (std::size_t other = 0; other < calls_.size(); ++other)
    if (other != static_cast<std::size_t>(rank) && calls_[other]) calls_[other]();
}

void Lockstep::when_awaited(int rank, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  calls_[static_cast<std::size_t>(rank)] = std::move(call);
}

}  // namespace tessera
