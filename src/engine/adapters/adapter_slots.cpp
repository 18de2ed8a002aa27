#include "tessera/engine/adapters/adapter_slots.h"

#include <algorithm>

namespace tessera {

// Returns a slot without an adapter. If every slot has an adapter, returns the least recently used of the slots whose
// adapter is neither running nor pinned. Returns -1 if there is no such slot.
std::int64_t AdapterSlots::free_slot() const {
  std::int64_t best = -1;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.holder == nullptr) return static_cast<std::int64_t>(i);
    if (slot.holder->running > 0 || slot.holder->pinned) continue;
    if (best < 0 || slot.last_use < slots_[static_cast<std::size_t>(best)].last_use)
      best = static_cast<std::int64_t>(i);
  }
  return best;
}

void AdapterSlots::acquire(const std::shared_ptr<ServedAdapter>& adapter) {
  if (adapter->slot < 0) {
    const std::int64_t free = free_slot();
    Slot& slot = slots_[static_cast<std::size_t>(free)];
    if (slot.holder != nullptr) vacate(*slot.holder);
    slot.holder = adapter;
    adapter->slot = free;
    writes_.push_back({.slot = free, .content = adapter->content});
  }
  ++adapter->running;
  slots_[static_cast<std::size_t>(adapter->slot)].last_use = ++clock_;
}

void AdapterSlots::release(ServedAdapter& adapter) {
  --adapter.running;
  slots_[static_cast<std::size_t>(adapter.slot)].last_use = ++clock_;
  unload(adapter);
}

// Frees the slot if the adapter is unloaded. Also frees it if the adapter stays loaded but the write to the slot is
// still pending. The write may have failed. In that case, every later forward would try it again and fail.
void AdapterSlots::unload(ServedAdapter& adapter) {
  if (adapter.running > 0 || adapter.slot < 0) return;
  const bool waits = std::ranges::find(writes_, adapter.slot, &Write::slot) != writes_.end();
  if (adapter.unloaded || waits) vacate(adapter);
}

// Frees the adapter's slot and drops its pending write.
void AdapterSlots::vacate(ServedAdapter& adapter) {
  const std::int64_t slot = adapter.slot;
  adapter.slot = -1;
  std::erase_if(writes_, [&](const Write& write) { return write.slot == slot; });
  slots_[static_cast<std::size_t>(slot)].holder.reset();  // may destroy the adapter
}

void AdapterSlots::mark_written(std::int64_t count) {
  const auto end = writes_.begin() + count;
  for (auto write = writes_.begin(); write != end; ++write)
    slots_[static_cast<std::size_t>(write->slot)].written = std::move(write->content);
  writes_.erase(writes_.begin(), end);
}

std::int64_t AdapterSlots::num_held() const {
  return std::ranges::count_if(slots_, [](const Slot& slot) { return slot.holder != nullptr; });
}

}  // namespace tessera
