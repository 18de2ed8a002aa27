// How attention of single rows shares a forward's keys among the workers of a launch, decided on the host. A pure
// function of lengths: no device, no allocation.
//
// A single row is a request's only one, or the only one of it that is wanted, which is its last.
//
// The keys that the rows see, in tiles, are laid end to end, and every worker takes an equal range of them, wherever
// requests begin and end. So all workers end at about the same time, a long request among short ones or not, and at
// most one request for each border between two workers is cut and has to be merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// A range of one request's keys, for one worker. The layout is the same on host and device.
struct alignas(16) KeySegment {
  std::int32_t request;  // row of the page table
  std::int32_t row;      // of q and out
  std::int32_t begin;    // first key
  std::int32_t end;      // past the last key
  std::int32_t newest;   // the first of the request's keys that this forward writes; the last one of a single row
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

// A forward's requests, [requests] each. The last row of a request has segments where it is the only one from its
// first row on.
struct SegmentedRows {
  std::span<const std::int32_t> query_lens;
  std::span<const std::int32_t> kv_lens;
  std::span<const std::int32_t> first_rows = {};  // of the request; empty: 0, so that requests of a single row have any

  bool has_segments(std::size_t b) const { return query_lens[b] - (first_rows.empty() ? 0 : first_rows[b]) == 1; }
};

// Returns the number of segments.
std::int64_t plan_segments(const SegmentedRows& rows, const SegmentLimits& limits, const SegmentPlan& plan);

}  // namespace tessera
