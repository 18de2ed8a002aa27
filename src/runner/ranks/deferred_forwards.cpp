#include "tessera/runner/ranks/deferred_forwards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/net/message.h"

namespace tessera {

void DeferredForwards::push(std::span<const std::byte> message, const ForwardInputs& inputs) {
  if (count_ == entries_.size()) {
    std::rotate(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first_), entries_.end());
    first_ = 0;
    entries_.emplace_back();
  }
  Entry& entry = entries_[(first_ + count_++) % entries_.size()];
  entry.message.assign(message.begin(), message.end());
  entry.logits = inputs.logits;
  entry.hidden_states = inputs.hidden_states;
  entry.failed = ok_status();
}

// take() also unpacks forwards that fail() has marked, because later messages refer to their page tables.
Result<ForwardInputs> DeferredForwards::take() {
  Entry& oldest = entries_[first_];
  first_ = (first_ + 1) % entries_.size();
  --count_;
  taken_.swap(oldest.message);
  const auto read = [&]() -> Status {
    MessageReader reader = TRY(MessageReader::open(taken_));
    return received_.unpack(reader);
  };
  if (const Status done = read(); !done.ok())
    return device_lost(fmt::format("a forward's message cannot be read: {}", done.message()));
  TRY(std::exchange(oldest.failed, ok_status()));
  return received_.inputs(oldest.logits, oldest.hidden_states);
}

void DeferredForwards::fail(const Status& why) {
  for (std::size_t i = 0; i < count_; ++i) entries_[(first_ + i) % entries_.size()].failed = why;
}

}  // namespace tessera
