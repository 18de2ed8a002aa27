// Groups the router's pairs (token, k) for a decode step (moe_streamed.cuh). A group has a few pairs of the same
// expert.
#pragma once

#include <cstdint>

#include "tessera/ops/moe/moe_experts.cuh"

namespace tessera::cuda::moe {

inline constexpr int kStreamedPairs = 256;        // maximum number of pairs (token, k)
inline constexpr int kStreamedRows = 8;           // maximum number of rows in a group
inline constexpr int kMostGroupingThreads = 640;  // maximum number of threads in a block

// A group of rows of one expert. Its rows belong to the pairs order[first … first + rows) of RowGroups.
struct RowGroup {
  int expert;
  int first;
  int rows;
};

// The pairs (token, k), grouped by expert, in shared memory.
struct RowGroups {
  std::uint32_t group[kStreamedPairs];  // the expert, first and rows of a RowGroup, in one word
  std::int16_t id[kStreamedPairs];
  std::uint8_t order[kStreamedPairs];  // the pairs, sorted by expert
  std::uint8_t begin[kStreamedPairs];  // begin[p], if p is an expert's first pair: where its pairs begin in `order`
  int2 scratch[kMostGroupingThreads / kWarp];
  int count;

  __device__ RowGroup at(int i) const {
    const std::uint32_t g = group[i];
    return {static_cast<int>(g >> 12), static_cast<int>(g >> 4 & 255u), static_cast<int>(g & 15u)};
  }
};
static_assert(kStreamedPairs <= 256 && kStreamedRows < 16);

// Makes the list of groups. All threads of a block call this function, and a block needs at least `pairs` threads. The
// list is complete when the function returns. Experts are in the order in which pairs first name them.
__device__ inline void make_groups(const std::int32_t* ids, int pairs, int experts, RowGroups& to) {
  const int pair = static_cast<int>(threadIdx.x);
  int id = -1;
  if (pair < pairs) {
    id = __ldcg(ids + pair);
    if (id >= experts) id = -1;
    to.id[pair] = static_cast<std::int16_t>(id);
  }
  __syncthreads();
  int total = 0;
  int rank = 0;
  int first = pair;
  if (id >= 0) {
    for (int i = pairs - 1; i >= 0; --i) {
      if (to.id[i] != id) continue;
      ++total;
      rank += i < pair ? 1 : 0;
      first = i;
    }
  }
  const int rows = rank == 0 ? total : 0;
  const int groups = (rows + kStreamedRows - 1) / kStreamedRows;
  const int2 before = sum_before(make_int2(rows, groups), to.scratch);
  if (rows > 0) to.begin[pair] = static_cast<std::uint8_t>(before.x);
  for (int i = 0; i < groups; ++i) {
    const int at = i * kStreamedRows;
    to.group[before.y + i] = static_cast<std::uint32_t>(id) << 12 | static_cast<std::uint32_t>(before.x + at) << 4 |
                             static_cast<std::uint32_t>(min(kStreamedRows, rows - at));
  }
  if (pair == static_cast<int>(blockDim.x) - 1) to.count = before.y + groups;
  __syncthreads();
  if (id >= 0) to.order[to.begin[first] + rank] = static_cast<std::uint8_t>(pair);
  __syncthreads();
}

}  // namespace tessera::cuda::moe
