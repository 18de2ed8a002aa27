// How keys and values reach the warps of attention of single-row requests (decode_attention.cuh): the stages in shared
// memory, and the loads that fill them through the copy engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/ops/attention/decode_parts.cuh"
#include "tessera/ops/attention/decode_schedule.h"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_float8.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

inline constexpr int kKeyBlock = 16;  // number of keys in a stage, and in a box of the copy engine; all are in one page
inline constexpr int kMostRowBytes = 128;  // maximum bytes of a box row in shared memory; longer keys take several rows
inline constexpr int kStageBytes = 128 << 10;  // the size of all stages of a block together

template <class Y>
inline constexpr bool kIsFloat8 = std::is_same_v<Y, __nv_fp8_e4m3>;
// The number of warps in a block, and the number of stages of each warp. Y is the cache's type. A warp takes as long
// for a stage of E4M3 as for one of 16 bits, so that it needs twice as many warps for the same bytes. Their sums must
// fit in shared memory too.
template <class Y, int kHeadDim>
inline constexpr int kDecodeWarps = kHeadDim == 64 || (kHeadDim == 128 && kIsFloat8<Y>) ? 16
                                    : kHeadDim <= 256                                   ? 8
                                                                                        : 4;
template <class Y, int kHeadDim>
inline constexpr int kDecodeStages = kStageBytes / (kDecodeWarps<Y, kHeadDim> * 2 * kKeyBlock * kHeadDim *
                                                    static_cast<int>(sizeof(Y)));
// The number of bytes in one box row, and the number of elements in one box row.
template <class Y, int kHeadDim>
inline constexpr int kRowBytes = std::min(kMostRowBytes, kHeadDim* static_cast<int>(sizeof(Y)));
template <class Y, int kHeadDim>
inline constexpr int kRowElements = kRowBytes<Y, kHeadDim> / static_cast<int>(sizeof(Y));

template <class T>
struct DecodeAttention {
  CUtensorMap keys;  // [slots, kv_heads · head_dim / kRowElements, kRowElements], boxes of kKeyBlock slots of one head
  CUtensorMap values;  // like `keys`
  const T* q;          // [rows, heads, head_dim]
  SegmentPlan plan;
  const std::int32_t* page_table;  // [requests, max_pages]
  const float* sinks;              // [heads]; null: no sinks
  CacheScales scales;
  DecodeParts<T> parts;
  float scale;    // factor that q·k is multiplied by
  float softcap;  // 0: no softcap
  int max_pages;
  int page_size;  // a multiple of kKeyBlock
};

template <class Y, int kHeadDim>
struct alignas(1024) DecodeShared {
  static constexpr int kWarps = kDecodeWarps<Y, kHeadDim>;
  static constexpr int kStages = kDecodeStages<Y, kHeadDim>;
  static constexpr int kBoxBytes = kKeyBlock * kHeadDim * static_cast<int>(sizeof(Y));
  struct Stage {
    unsigned char keys[kBoxBytes];
    unsigned char values[kBoxBytes];
  };

  Stage stages[kWarps][kStages];
  SharedBarrier arrived[kWarps][kStages];
  WarpSums<kHeadDim, kWarps> sums;
};

// Returns the address of one pack of a key. A pack is 16 neighbouring bytes, and `column` is its index in the key. TMA
// has written the key to `box`, in rows of `bytes` bytes. A key of more bytes has several rows, which are kKeyBlock
// rows apart. TMA swizzles each row: it XORs a pack's index in the row with key % 8 if rows have 128 bytes, and with
// key / 2 % 4 if rows have 64 bytes. So packs with the same index in eight neighbouring keys lie in different banks.
template <int bytes>
__device__ inline const unsigned char* pack_in_box(const unsigned char* box, int key, int column) {
  constexpr int kPacks = bytes / 16;
  static_assert(kPacks == 8 || kPacks == 4);
  const int permuted = (column % kPacks) ^ (key / (8 / kPacks) % kPacks);
  return box + column / kPacks * (kKeyBlock * bytes) + key * bytes + permuted * 16;
}

// Loads the keys and values that one warp processes, for all segments of the warp's block. The loads run ahead of the
// arithmetic.
template <class T, class Y, int kHeadDim>
class KeyLoader {
 public:
  using Shared = DecodeShared<Y, kHeadDim>;

  __device__ KeyLoader(const DecodeAttention<T>& p, Shared& shared, const KeySegment* begin, const KeySegment* end)
      : p_(p), shared_(shared), segment_(begin), end_(end) {
    enter();
    settle();
  }

  __device__ bool done() const { return segment_ == end_; }
  // Returns whether the next load reads a key that this forward writes.
  __device__ bool has_newest() const { return block_ >= newest_block_; }

  // Starts the load of the next keys and values. All lanes call it. Preconditions: there are keys left to load, and the
  // stage is free.
  __device__ void load(int stage) {
    if (threadIdx.x == 0) {
      const int slot = page_ * p_.page_size + block_ * kKeyBlock % p_.page_size;
      const int column = static_cast<int>(blockIdx.y) * (kHeadDim / kRowElements<Y, kHeadDim>);
      SharedBarrier& arrived = shared_.arrived[threadIdx.y][stage];
      auto& to = shared_.stages[threadIdx.y][stage];
      arrived.arrive_and_expect(2 * Shared::kBoxBytes);
      copy_box(shared_address(to.keys), p_.keys, arrived, 0, slot, column);
      copy_box(shared_address(to.values), p_.values, arrived, 0, slot, column);
    }
    block_ += Shared::kWarps;
    settle();
  }

 private:
  __device__ void enter() {
    block_ = segment_->begin / kKeyBlock + static_cast<int>(threadIdx.y);
    blocks_end_ = (segment_->end + kKeyBlock - 1) / kKeyBlock;
    newest_block_ = segment_->newest / kKeyBlock;
    pages_ = p_.page_table + static_cast<std::int64_t>(segment_->request) * p_.max_pages;
  }
  // If the current segment has no more keys for this warp, moves to the next segment that has some. Also reads the page
  // number of the next keys. The page number is read long before these keys are loaded, so that no load waits for it.
  __device__ void settle() {
    while (block_ >= blocks_end_) {
      if (++segment_ == end_) return;
      enter();
    }
    page_ = pages_[block_ * kKeyBlock / p_.page_size];
  }

  const DecodeAttention<T>& p_;
  Shared& shared_;
  const KeySegment* segment_;
  const KeySegment* end_;
  const std::int32_t* pages_;
  int block_;  // index of the block of kKeyBlock keys within the request
  int blocks_end_;
  int newest_block_;
  int page_;
};

}  // namespace tessera::cuda
