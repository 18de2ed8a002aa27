// Finds the shortest prefix of a row whose number of tokens or total weight reaches a given amount. A prefix is the
// row's first tokens in the order of the draw (token_order.h). The row's histogram (RowBins) must already be filled.
// The search first finds the bin of 1/16 nat in which the prefix ends. Then it finds the digits of the last token's key
// one by one, with one pass over the row for each digit, until one token is left.
#pragma once

#include <cooperative_groups.h>

#include "tessera/ops/sampling/cuda_token_order.cuh"

namespace tessera::cuda {

inline constexpr int kSearchThreads = 1024;  // the threads in a block, and the possible values of a digit
inline constexpr int kDigitBits = 10;
static_assert(kSearchThreads == 1 << kDigitBits && kNatBins <= kSearchThreads && kSearchThreads == kWarp * kWarp);

inline constexpr unsigned kMostRowBlocks = 8;  // the maximum number of blocks in a portable cluster

// The blocks that share a row. In code for Hopper and later they are a cluster. In code for older devices there is only
// one block.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
struct RowBlocks {
  __device__ static unsigned count() { return cooperative_groups::this_cluster().num_blocks(); }
  __device__ static unsigned rank() { return cooperative_groups::this_cluster().block_rank(); }
  __device__ static void sync() { cooperative_groups::this_cluster().sync(); }
  // Returns the variable of block `rank` that corresponds to `mine`. Both variables are in shared memory.
  template <class T>
  __device__ static T* shared_of(T* mine, unsigned rank) {
    return cooperative_groups::this_cluster().map_shared_rank(mine, rank);
  }
};
#else
struct RowBlocks {
  __device__ static unsigned count() { return 1; }
  __device__ static unsigned rank() { return 0; }
  __device__ static void sync() { __syncthreads(); }
  template <class T>
  __device__ static T* shared_of(T* mine, unsigned) {
    return mine;
  }
};
#endif

enum class Measure { kCount, kWeight };
__device__ inline std::uint64_t measure_of(const Tally& tally, Measure measure) {
  return measure == Measure::kCount ? tally.count : tally.weight;
}

// One bin of a histogram. Each thread of a block holds one bin.
struct Bin {
  Tally tally;
  int token;  // the greatest id of a token in the bin
};

struct FoundBin {
  int index;
  Tally before;  // the sum of all bins before this bin
  Bin bin;
};

struct SearchScratch {
  Histogram<kSearchThreads> digits;
  Tally warps[kWarp];
  FoundBin found;
  std::uint64_t weight;
};

// Returns the sum of `sum` over this lane and all lanes before it.
__device__ inline Tally warp_prefix(Tally sum) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const Tally other{__shfl_up_sync(0xffffffffu, sum.count, step), __shfl_up_sync(0xffffffffu, sum.weight, step)};
    if (lane >= step) sum = sum + other;
  }
  return sum;
}

struct BlockPrefix {
  Tally up_to;  // the sum over this thread and all threads before it
  Tally total;
};

__device__ inline BlockPrefix block_prefix(const Tally& mine, SearchScratch& scratch) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Tally in_warp = warp_prefix(mine);
  if (lane == kWarp - 1) scratch.warps[warp] = in_warp;
  __syncthreads();
  const Tally warps = warp_prefix(scratch.warps[lane]);
  const auto up_to = [&](int w) {
    return Tally{__shfl_sync(0xffffffffu, warps.count, w), __shfl_sync(0xffffffffu, warps.weight, w)};
  };
  const Tally total = up_to(kWarp - 1);
  const Tally before = up_to(warp > 0 ? warp - 1 : 0);
  return {warp > 0 ? before + in_warp : in_warp, total};
}

// Returns, in every thread, the bin at which the running sum of the bins' tallies reaches `need`. Precondition:
// 1 <= need, and the sum of all bins is at least `need`.
__device__ inline FoundBin find_bin(const Bin& mine, std::uint64_t need, Measure measure, SearchScratch& scratch) {
  const Tally up_to = block_prefix(mine.tally, scratch).up_to;
  const Tally before = up_to - mine.tally;
  if (measure_of(before, measure) < need && need <= measure_of(up_to, measure))
    scratch.found = {static_cast<int>(threadIdx.x), before, mine};
  __syncthreads();
  return scratch.found;
}

// Returns the bin of the digit that equals the calling thread's index, summed over the blocks that share the row. The
// histograms of these blocks must be complete. Most digits have no tokens, and reading other blocks' shared memory is
// slow. So if a block has no token with this digit, only the count is read from that block.
__device__ inline Bin merged_digit(SearchScratch& scratch) {
  const int digit = static_cast<int>(threadIdx.x);
  unsigned filled = 0;  // bit b is set if block b has tokens with this digit
#pragma unroll
  for (unsigned rank = 0; rank < kMostRowBlocks; ++rank)
    if (rank < RowBlocks::count() && RowBlocks::shared_of(&scratch.digits, rank)->count[digit] != 0)
      filled |= 1u << rank;
  Bin sum{{0, 0}, -1};
#pragma unroll 1
  for (; filled != 0; filled &= filled - 1) {
    const unsigned rank = static_cast<unsigned>(__ffs(static_cast<int>(filled))) - 1;
    const Histogram<kSearchThreads>& part = *RowBlocks::shared_of(&scratch.digits, rank);
    sum.tally = sum.tally + part.at(digit);
    sum.token = part.token[digit] > sum.token ? part.token[digit] : sum.token;
  }
  return sum;
}

struct SearchRow {
  const float* logits;  // [vocab]
  std::int64_t vocab;
  RowScale scale;
  const RowBins& bins;
  Bin bin;  // the calling thread's bin of the row
};

// A range of keys, divided into at most kSearchThreads subranges of 2^shift keys. A key's digit is the index of its
// subrange.
struct KeyRange {
  std::uint64_t first;
  std::uint64_t last;
  int shift;
};

// Divides [first, last] into at most one subrange for each thread.
__device__ inline KeyRange cut(std::uint64_t first, std::uint64_t last) {
  const int bits = 64 - __clzll(static_cast<long long>(last - first));
  return {first, last, bits > kDigitBits ? bits - kDigitBits : 0};
}
__device__ inline KeyRange range_of_bin(const SearchRow& row, int bin) {
  return cut(std::uint64_t{row.bins.first[bin]} << kIdBits,
             std::uint64_t{row.bins.last[bin]} << kIdBits | static_cast<std::uint64_t>(row.vocab - 1));
}
__device__ inline KeyRange range_of_digit(const KeyRange& range, int digit) {
  const std::uint64_t first = range.first + (static_cast<std::uint64_t>(digit) << range.shift);
  const std::uint64_t last = first + ((std::uint64_t{1} << range.shift) - 1);
  return cut(first, last < range.last ? last : range.last);
}

// Calls f(logit, id, key) for each token whose key is in the range, in one pass over this block's part of the row. The
// code contains f only once, so that the kernel stays small. A kernel that does not fit in the instruction cache spends
// most of its time waiting for instructions.
template <int N, class F>
__device__ void for_each_in(const SearchRow& row, const KeyRange& range, const F& f) {
  using Batch = TokenBatch<N, 4>;
  const float most = key_logit(range.first);
  const float least = key_logit(range.last);
  const int unit = static_cast<int>(RowBlocks::count()) * N;
  const std::int64_t share = (static_cast<int>(row.vocab) + unit - 1) / unit * N;
  const std::int64_t begin = RowBlocks::rank() * share;
  const std::int64_t end = begin + share < row.vocab ? begin + share : row.vocab;
  for_each_batch<N, 4>(row.logits, begin, end, [&](const Batch& batch) {
    unsigned near = 0;  // bit i is set if logit i of the batch may be in the range
#pragma unroll
    for (int i = 0; i < Batch::kSize; ++i) near |= batch.logit(i) <= most && batch.logit(i) >= least ? 1u << i : 0u;
#pragma unroll 1
    for (; near != 0; near &= near - 1) {
      const std::int64_t id = batch.id(__ffs(static_cast<int>(near)) - 1);
      const float logit = row.logits[id];
      const std::uint64_t key = token_key(logit, id);
      if (key >= range.first && key <= range.last) f(logit, id, key);
    }
  });
}

template <int N>
__device__ void count_digits(const SearchRow& row, const KeyRange& range, Histogram<kSearchThreads>& digits) {
  digits.clear();
  __syncthreads();
  for_each_in<N>(row, range, [&](float logit, std::int64_t id, std::uint64_t key) {
    const int digit = static_cast<int>((key - range.first) >> range.shift);
    digits.add(digit, token_weight(row.scale.nats(logit)), static_cast<int>(id));
  });
}

// A prefix: the first tokens in the order of the draw.
struct FirstTokens {
  std::uint64_t weight;  // the sum of their weights
  int last;              // the id of the last of them
};

// Returns the shortest prefix whose number of tokens or total weight is at least `need`. `measure` says which of the
// two is compared with `need`.
template <int N>
__device__ FirstTokens search(const SearchRow& row, std::uint64_t need, Measure measure, SearchScratch& scratch) {
  Tally before{0, 0};
  KeyRange range{};
  Bin mine = row.bin;
  for (bool in_bins = true;; in_bins = false) {
    const FoundBin found = find_bin(mine, need - measure_of(before, measure), measure, scratch);
    before = before + found.before;
    range = in_bins ? range_of_bin(row, found.index) : range_of_digit(range, found.index);
    if (found.bin.tally.count <= 1 || range.first >= range.last)
      return {before.weight + found.bin.tally.weight, found.bin.token};
    count_digits<N>(row, range, scratch.digits);
    RowBlocks::sync();
    mine = merged_digit(scratch);
    RowBlocks::sync();  // all blocks have read this block's digits
  }
}

// Returns the weight of all tokens for which RowScale::nats() is at least `nats`. Precondition: -kReach < nats <= 0.
template <int N>
__device__ std::uint64_t weight_from(const SearchRow& row, float nats, SearchScratch& scratch) {
  const int edge = static_cast<int>(-nats * kBinsPerNat);
  Tally mine{0, 0};
  if (RowBlocks::rank() == 0 && static_cast<int>(threadIdx.x) < edge) mine = row.bin.tally;
  if (row.bins.count[edge] != 0) {
    for_each_in<N>(row, range_of_bin(row, edge), [&](float logit, std::int64_t, std::uint64_t) {
      const float here = row.scale.nats(logit);
      if (here >= nats) mine.weight += token_weight(here);
    });
  }
  const Tally total = block_prefix(mine, scratch).total;
  if (threadIdx.x == 0) scratch.weight = total.weight;
  RowBlocks::sync();
  std::uint64_t weight = 0;
  for (unsigned rank = 0; rank < RowBlocks::count(); ++rank) weight += *RowBlocks::shared_of(&scratch.weight, rank);
  RowBlocks::sync();  // all blocks have read this block's weight
  return weight;
}

}  // namespace tessera::cuda
