// Decides on the host how attention of single rows divides a forward's keys among the workers of a launch. The decision
// depends only on lengths. The code uses no device and allocates nothing.
//
// A single row is a request's only row, or its last row if no other row is wanted.
//
// The keys that the rows see form one sequence of tiles, request after request. Every worker takes an equally long
// range of the sequence, even if the range begins or ends within a request. So all workers end at about the same time,
// even with one long request among short ones. A border between two workers cuts at most one request, and the parts of
// this request are merged afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// A range of one request's keys, for one worker. The layout is the same on host and device.
struct alignas(16) KeySegment {
  std::int32_t request;  // index of the request, and of its row in the page table
  std::int32_t row;      // index of the request's row in q and out
  std::int32_t begin;    // position of the first key
  std::int32_t end;      // one past the position of the last key
  std::int32_t newest;   // position of the first key that this forward writes: kv_len - query_len of the request
  std::int32_t part;     // the segment's index among the request's parts, in key order
  std::int32_t parts;    // number of parts of the request; 1: nothing is merged
  std::int32_t slot;     // index of the request's part 0 among the partial results; the other parts follow
};

struct SegmentLimits {
  std::int64_t workers = 1;    // at least 1
  std::int64_t tile_keys = 1;  // a request is cut only at multiples of this number of keys
  std::int64_t window = 0;     // limit of the number of keys that a row sees; 0: a row sees all keys
};

// Worker w processes the segments starts[w] … starts[w + 1] - 1, in the order of the list.
struct SegmentPlan {
  std::int32_t* starts;  // [workers + 1]
  KeySegment* segments;  // [most_segments()]
};

// Returns the maximum number of segments of `requests` requests. A border between two workers adds at most one segment.
constexpr std::int64_t most_segments(std::int64_t requests, std::int64_t workers) { return requests + workers - 1; }
// Returns the number of slots for partial results. A border between two workers cuts at most one request, and then each
// of the two workers has one part of this request.
constexpr std::int64_t most_parts(std::int64_t workers) { return 2 * (workers - 1); }

// The requests of a forward. Each list has one entry per request. Request b has segments only if first_rows[b] is the
// index of its last row. The segments then contain the keys of this row.
struct SegmentedRows {
  std::span<const std::int32_t> query_lens;
  std::span<const std::int32_t> kv_lens;
  std::span<const std::int32_t> first_rows = {};  // each request's first wanted row; empty: row 0

  bool has_segments(std::size_t b) const { return query_lens[b] - (first_rows.empty() ? 0 : first_rows[b]) == 1; }
};

// Plans the segments of all workers. Returns the number of segments.
std::int64_t plan_segments(const SegmentedRows& rows, const SegmentLimits& limits, const SegmentPlan& plan);

}  // namespace tessera
