// A ring of stages in shared memory. One warp fills the stages in advance by copies, and eight warps read them. A stage
// holds 1024 columns of eight rows of a matrix, or 64 keys or values of a KV head.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "tessera/ops/cuda/box_copy.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda::decoder_layers {

inline constexpr int kWarps = 8;  // number of warps of a block that read the ring
inline constexpr int kPartColumns = 1024;
inline constexpr int kRowBytes = kPartColumns * 2 + 64;  // bytes of a padded row in shared memory
inline constexpr int kSlotBytes = 17 * 1024;             // a multiple of 1 KiB, the period of the copy engine's swizzle
inline constexpr int kHeadDim = 128;
inline constexpr int kKeyBytes = kHeadDim * 2;
inline constexpr int kTileKeys = 64;
static_assert(kTileKeys * kKeyBytes <= kSlotBytes && 8 * kRowBytes <= kSlotBytes);

// The requests of a decode step, one row each. Lengths and tables are copied to the device before the forward.
struct Requests {
  const float* table;                // [rows, 2, head_dim / 2]: cosines, then sines of the rotary embedding
  const std::int32_t* slots;         // [rows]: slot of the newest key
  const std::int32_t* page_table;    // [rows, max_pages]
  const std::int32_t* kv_lens;       // [rows], including the newest key
  const std::int32_t* num_requests;  // [1]: rows from this number on are padding
  std::int64_t num_slots;
  int rows;
  int max_pages;
  int page_size;
  float qk_eps;
  float scale_log2;  // factor that turns q·k into a base-2 exponent: log2(e) · the attention's scale

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

  // Waits until the copies of a stage have arrived. The stage is the current one if `ahead` is 0, and otherwise the one
  // `ahead` stages later. The reading warps call it.
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

  // Starts copying 1024 columns, from column `column` on, of eight rows of w [*, k], from row `row` on. If `norm` is
  // not null, also copies 1024 values of `norm`. All lanes of the filling warp call this function.
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
  // Starts copying a tile of a request's keys or values, page by page. If the tile goes past the request's last page,
  // the last page is copied again in place of the missing pages. A box of `cache` is one page's rows of one KV head. If
  // `norms_to` is not null, also copies the weights of both head norms.
  __device__ void ask_keys(const CUtensorMap& cache, const Requests& r, int request, int tile, int kv_head,
                           const __nv_bfloat16* q_norm, const __nv_bfloat16* k_norm,
                           unsigned char (*norms_to)[kKeyBytes]) {
    expect(kTileKeys * kKeyBytes + (norms_to != nullptr ? 2 * kKeyBytes : 0));
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int pages = kTileKeys / r.page_size;  // number of pages in a tile
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
