// Decides on the host how attention of single rows shares a forward's keys among the workers of a launch. It is a pure
// function of lengths: it uses no device and allocates nothing.
//
// A single row is a request's only row, or its last row if no other row is wanted.
//
// The keys that the rows see are laid end to end in tiles, and every worker takes an equal range of tiles, wherever
// requests begin and end. So all workers end at about the same time, even with one long request among short ones. A
// border between two workers cuts at most one request, which then has to be merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// A range of one request's keys, for one worker. The layout is the same on host and device.
struct alignas(16) KeySegment {
  std::int32_t request;  // row of the page table
  std::int32_t row;      // row of q and out
  std::int32_t begin;    // first key
  std::int32_t end;      // past the last key
  std::int32_t newest;   // the first key of the request that this forward writes; for a request of one row that is its
                         // last key
  std::int32_t part;     // 0 … parts - 1, in key order
  std::int32_t parts;    // number of parts of the request; 1: nothing is merged
  std::int32_t slot;     // index of the request's part 0 among the partial results; its other parts follow
};

struct SegmentLimits {
  std::int64_t workers = 1;    // at least 1
  std::int64_t tile_keys = 1;  // a request is cut only at multiples of this
  std::int64_t window = 0;     // limit of the keys that a row sees; 0: it sees all keys
};

// Worker w processes the segments starts[w] … starts[w + 1] - 1, in the order of the list.
struct SegmentPlan {
  std::int32_t* starts;  // [workers + 1]
  KeySegment* segments;  // [most_segments()]
};

// Returns the greatest number of segments of `requests` requests. A border between two workers adds at most one
// segment.
constexpr std::int64_t most_segments(std::int64_t requests, std::int64_t workers) { return requests + workers - 1; }
// Returns the number of slots for partial results. A border between two workers cuts at most one request, and each side
// of the border may hold one of its parts.
constexpr std::int64_t most_parts(std::int64_t workers) { return 2 * (workers - 1); }

// The requests of a forward, each list [requests]. Request b has segments, for its last row, if that row is the only
// one from row first_rows[b] on.
struct SegmentedRows {
  std::span<const std::int32_t> query_lens;
  std::span<const std::int32_t> kv_lens;
  std::span<const std::int32_t> first_rows = {};  // first row of each request that counts; empty: 0

  bool has_segments(std::size_t b) const { return query_lens[b] - (first_rows.empty() ? 0 : first_rows[b]) == 1; }
};

// Plans the segments of all workers. Returns the number of segments.
std::int64_t plan_segments(const SegmentedRows& rows, const SegmentLimits& limits, const SegmentPlan& plan);

}  // namespace tessera
