// How attention of single rows shares a forward's keys among the workers of a launch, decided on the host. A pure
// function of lengths: no device, no allocation.
//
// The keys that the rows see, in tiles, are laid end to end, and every worker takes an equal range of them, wherever
// requests begin and end. So all workers end at about the same time, a long request among short ones or not, and at
// most one request for each border between two workers is cut and has to be merged.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// A range of one request's keys, for one worker. The layout is the same on host and device.
struct alignas(16) KeySegment {
  std::int32_t request;  // row of the page table
  std::int32_t row;      // of q and out
  std::int32_t begin;    // first key
  std::int32_t end;      // past the last key
  std::int32_t newest;   // the request's last key, which this forward writes
  std::int32_t part;     // 0 … parts - 1, in the order of keys
  std::int32_t parts;    // of the request; 1: nothing is merged
  std::int32_t slot;     // of the request's part 0 among the partial results; its other parts follow
};

struct SegmentLimits {
  std::int64_t workers = 1;    // at least 1
  std::int64_t tile_keys = 1;  // a request is cut at multiples of this alone
  std::int64_t window = 0;     // the most keys that a row sees; 0: all
};

// Worker w has the segments starts[w] … starts[w + 1] - 1, in the order it should take them.
struct SegmentPlan {
  std::int32_t* starts;  // [workers + 1]
  KeySegment* segments;  // [most_segments()]
};

// Of `requests` requests. A border between two workers adds at most one segment.
constexpr std::int64_t most_segments(std::int64_t requests, std::int64_t workers) { return requests + workers - 1; }
// Slots of partial results. A border between two workers cuts one request, whose parts at both its sides may have one
// each.
constexpr std::int64_t most_parts(std::int64_t workers) { return 2 * (workers - 1); }

// Plans the requests of a single row; the others have no segment. Returns the number of segments.
std::int64_t plan_segments(std::span<const std::int32_t> query_lens, std::span<const std::int32_t> kv_lens,
                           const SegmentLimits& limits, const SegmentPlan& plan);

}  // namespace tessera
