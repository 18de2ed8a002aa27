// Decides which low-rank adapter (LoRA) has which slot of the device's tables (runner/adapters/adapter_tables.h). A
// running sequence keeps its adapter's slot. An adapter without running sequences keeps its slot until another adapter
// needs one. The least recently used of these adapters loses its slot first. A pinned adapter keeps its slot until it
// is unloaded.
//
// Pure bookkeeping; used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/engine/adapters/served_adapter.h"

namespace tessera {

class AdapterSlots {
 public:
  // `count` is the number of slots. If it is 0, no adapters are served.
  explicit AdapterSlots(std::int64_t count) : slots_(static_cast<std::size_t>(count)) {}

  // Returns whether acquire() would find a slot.
  bool has_room(const ServedAdapter& adapter) const { return adapter.slot >= 0 || free_slot() >= 0; }
  // Records that one more running sequence uses the adapter. Gives the adapter a slot if it has none. Precondition:
  // has_room().
  void acquire(const std::shared_ptr<ServedAdapter>& adapter);
  // Records that one running sequence no longer uses the adapter. Then does what unload() does.
  void release(ServedAdapter& adapter);
  // Frees the adapter's slot if adapter.unloaded is set, or if the write to the slot is still pending. Does nothing
  // while a running sequence uses the adapter.
  void unload(ServedAdapter& adapter);

  // A slot whose adapter must be written to the device before the next forward.
  struct Write {
    std::int64_t slot;
    std::shared_ptr<const Adapter> content;
  };
  // Returns the pending writes, in order. mark_written() removes the first `count` of them.
  std::span<const Write> writes() const { return writes_; }
  void mark_written(std::int64_t count);
  void mark_written() { mark_written(std::ssize(writes_)); }

  std::int64_t count() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t num_held() const;  // number of slots that hold an adapter

 private:
  struct Slot {
    std::shared_ptr<ServedAdapter> holder;   // null: the slot is free
    std::shared_ptr<const Adapter> written;  // content of the newest write; kept because the copy may still run
    std::uint64_t last_use = 0;
  };
  std::int64_t free_slot() const;
  void vacate(ServedAdapter& adapter);

  std::vector<Slot> slots_;
  std::vector<Write> writes_;
  std::uint64_t clock_ = 0;
};

}  // namespace tessera
