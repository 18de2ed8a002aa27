// What is known of each part at one size, as data to look at: the entries of a piecewise backend.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"
#include "tessera/piecewise/bound_forward.h"
#include "tessera/piecewise/compiled_forward.h"
#include "tessera/piecewise/forward_memory.h"

namespace tessera {

// A value of a part and its place.
struct EntryValue {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t arena_offset = -1;  // -1: not in the arena
  DeviceAddress address = {};      // none: not bound yet
};

struct PartEntry {
  enum class Runnable : std::uint8_t { kNothing, kKernels, kGraph };

  std::string part;  // "piece 0"
  ir::Bucket runtime_shape;
  bool need_to_compile = false;  // it has kernels, which are bound for exactly this shape
  bool use_graph = false;        // a capture records it
  bool compiled = false;         // its kernels are bound
  Runnable runnable = Runnable::kNothing;
  std::int64_t num_finished_warmup = 0;  // eager runs between binding and capture
  std::vector<EntryValue> outputs{};     // what other parts or the caller read
  std::vector<EntryValue> inputs{};      // from other parts or the caller; weights and states are not listed
};

std::string_view runnable_name(PartEntry::Runnable runnable);  // "nothing" "kernels" "graph"

// One entry for each part. `bound`: the forward at that bucket; null where it is not bound, and then the places are
// those it would be bound to in the planned memory.
Result<std::vector<PartEntry>> part_entries(const CompiledForward& forward, const ForwardMemory& memory,
                                            const ir::Bucket& bucket, const BoundForward* bound);

// A paragraph for each.
std::string to_text(std::span<const PartEntry> entries);

}  // namespace tessera
