// Describes the state of each part of a forward (stitching.h) for one bucket (a number for each symbolic size of the
// graph, ir/type.h), so that users can inspect it.
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

// A value of a part, and its address.
struct EntryValue {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t arena_offset = -1;  // -1 if the value is not in the arena
  DeviceAddress address = {};      // null if the bucket is not bound yet
};

struct PartEntry {
  enum class Runnable : std::uint8_t { kNothing, kKernels, kGraph };

  std::string part;  // for example "piece 0"
  ir::Bucket runtime_shape;
  bool need_to_compile = false;  // the part has kernels, which are bound for exactly this shape
  bool use_graph = false;        // whether a capture makes a graph of the part
  bool compiled = false;         // whether its kernels are bound
  Runnable runnable = Runnable::kNothing;
  std::int64_t num_finished_warmup = 0;  // eager runs between binding and capture
  std::vector<EntryValue> outputs{};     // values that other parts or the caller read
  std::vector<EntryValue> inputs{};      // values from other parts or the caller, without weights and states
};

std::string_view runnable_name(PartEntry::Runnable runnable);  // "nothing" "kernels" "graph"

// Returns one entry for each part. `bound` is the bucket's bound forward. If it is null, the bucket is not bound, and
// the values have their planned arena offsets but no addresses.
Result<std::vector<PartEntry>> part_entries(const CompiledForward& forward, const ForwardMemory& memory,
                                            const ir::Bucket& bucket, const BoundForward* bound);

// Formats a paragraph for each entry.
std::string to_text(std::span<const PartEntry> entries);

}  // namespace tessera
