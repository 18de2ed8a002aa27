// A ring of stages in shared memory. One warp fills it in advance by copies, and eight warps read it. A stage is eight
// rows of 1024 columns of a matrix, or 64 keys of a KV head.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda::decoder_layers {

inline constexpr int kWarps = 8;  // warps that read
inline constexpr int kPartColumns = 1024;
inline constexpr int kRowBytes = kPartColumns * 2 + 64;  // bytes of a row in shared memory; see linear_streamed.cuh
inline constexpr int kSlotBytes = 17 * 1024;             // whole periods of the copy engine's swizzle
inline constexpr int kHeadDim = 128;
inline constexpr int kKeyBytes = kHeadDim * 2;
inline constexpr int kTileKeys = 64;
static_assert(kTileKeys * kKeyBytes <= kSlotBytes && 8 * kRowBytes <= kSlotBytes);

// The requests of a decode step, one row each. Lengths and tables are copied to the device before the forward.
struct Requests {
  const float* table;                // [rows, 2, head_dim / 2]: cosines, then sines
  const std::int32_t* slots;         // [rows]: slot of the newest key
  const std::int32_t* page_table;    // [rows, max_pages]
  const std::int32_t* kv_lens;       // [rows], including the newest key
  const std::int32_t* num_requests;  // [1]: rows from this number on are padding
  std::int64_t num_slots;
  int rows;
  int max_pages;
  int page_size;
  float qk_eps;
  float scale_log2;  // factor of q·k that makes scores exponents of two

  __device__ int length(int row) const { return row < *num_requests ? kv_lens[row] : 0; }
};

template <int kSlots>
struct WeightRing {
  unsigned char* memory;
  SharedBarrier* full;   // [kSlots]
  SharedBarrier* empty;  // [kSlots]
  int slot = 0;
  std::uint32_t turn = 0;

  // Initialises the barriers. One thread calls it, before __syncthreads().
  __device__ void begin() {
    for (int s = 0; s < kSlots; ++s) {
      full[s].init(1);
      empty[s].init(kWarps);
    }
    SharedBarrier::make_visible();
  }

  // Waits for the next stage, or for the stage that follows it at a distance of `ahead`. The warps that read call it.
  __device__ void wait(int ahead = 0) {
    const bool again = slot + ahead >= kSlots;
    full[slot + ahead - (again ? kSlots : 0)].wait((turn + (again ? 1 : 0)) & 1);
  }
  __device__ const unsigned char* stage(int ahead = 0) const {
    return memory + (slot + ahead - (slot + ahead >= kSlots ? kSlots : 0)) * kSlotBytes;
  }
  __device__ void release(int stages = 1) {
    __syncwarp();
    for (int i = 0; i < stages; ++i) {
      if (threadIdx.x % kWarp == 0) empty[slot].arrive();
      advance();
    }
  }

  // Starts copying rows `row` … of w [*, k], 1024 columns from `column` on. If `norm` is not null, copies 1024 of its
  // values too. The whole warp that fills calls it.
  __device__ void ask(const __nv_bfloat16* w, int k, int row, int column, const __nv_bfloat16* norm, void* norm_to) {
    constexpr std::uint32_t kBytes = kPartColumns * 2;
    expect(8 * kBytes + (norm != nullptr ? kBytes : 0));
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane < 8)
      bulk_copy(memory + slot * kSlotBytes + lane * kRowBytes, w + static_cast<std::int64_t>(row + lane) * k + column,
                kBytes, full[slot]);
    if (norm != nullptr && lane == 8) bulk_copy(norm_to, norm, kBytes, full[slot]);
    advance();
  }
  // Starts copying a tile of a request's keys or values, a page at a time; past the request's last page it copies that
  // page again. `cache` has boxes of a KV head's rows of one page. If `norms_to` is not null, copies the weights of
  // both head norms too.
  __device__ void ask_keys(const CUtensorMap& cache, const Requests& r, int request, int tile, int kv_head,
                           const __nv_bfloat16* q_norm, const __nv_bfloat16* k_norm,
                           unsigned char (*norms_to)[kKeyBytes]) {
    expect(kTileKeys * kKeyBytes + (norms_to != nullptr ? 2 * kKeyBytes : 0));
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int pages = kTileKeys / r.page_size;  // pages of a tile
    if (lane < pages) {
      const int last_page = (r.length(request) - 1) / r.page_size;
      const std::int32_t* table = r.page_table + static_cast<std::int64_t>(request) * r.max_pages;
      copy_box(shared_address(memory + slot * kSlotBytes + lane * r.page_size * kKeyBytes), cache, full[slot], 0, 0,
               kv_head, 0, table[min(tile * pages + lane, last_page)]);
    }
    if (norms_to != nullptr && lane >= kWarp - 2) {
      const bool is_q = lane == kWarp - 2;
      bulk_copy(norms_to[is_q ? 0 : 1], is_q ? q_norm : k_norm, kKeyBytes, full[slot]);
    }
    advance();
  }

 private:
  __device__ void expect(std::uint32_t bytes) {
    if (turn > 0) empty[slot].wait((turn - 1) & 1);
    if (threadIdx.x % kWarp == 0) full[slot].arrive_and_expect(bytes);
    __syncwarp();
  }
  __device__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      ++turn;
    }
  }
};

}  // namespace tessera::cuda::decoder_layers
