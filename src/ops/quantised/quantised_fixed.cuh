// Computes quantised_linear on Hopper for up to 32 rows of x in fixed point (fixed_rows.cuh), with w in int4 in groups
// of 128 columns. quantised_block.cuh has the rest of the kernel.
//
// An int4 weight w becomes the int8 number 16 · (w − 8). The conversion takes three instructions for eight weights. A
// number of x in fixed point has two bytes. One integer product has the high bytes and the low bytes of x as separate
// columns. The sums of a group are integers, and therefore exact. If the zero point is not 8, a correction is added to
// a sum. Then the sum becomes a float32, and is multiplied by the scales of both matrices.
//
// The time is bounded by reading w once. With 16-bit products (quantised_tiles.cuh), converting the weights and
// multiplying them by scales takes longer than reading them.
#pragma once

#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/fixed_rows.cuh"
#include "tessera/ops/cuda/wgmma_int8.cuh"
#include "tessera/ops/quantised/quantised_block.cuh"
#include "tessera/ops/quantised/quantised_tiles.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kStageFixedGroups = 2;  // number of groups of 128 columns in a stage

// The scales and zeros of a warp's 16 rows of w, in shared memory. The warp copies the scales and zeros of kStages
// stages together, as one set, because a copy of one scale takes as long as a copy of a whole sector of memory. The
// warp begins to copy a set kStages stages before it needs the set. All lanes call the functions.
template <bool kZeros>
class FixedScales {
 public:
  // Each row of w has kScaleRowBytes bytes of scales in shared memory: two sets side by side, each for kStages stages.
  // Each row also has kZeroRowBytes bytes of zeros with the same layout.
  static constexpr std::uint32_t kStages = 4;
  static constexpr int kScaleRowBytes = 64;
  static constexpr int kZeroRowBytes = 16;
  static constexpr int kZerosAt = 16 * kScaleRowBytes;
  static constexpr int kWarpBytes = 16 * (kScaleRowBytes + (kZeros ? kZeroRowBytes : 0));

  // The scales and zeros of a stage's groups, for one row. `zeros` has a byte for each group.
  struct Row {
    float scales[kStageFixedGroups];
    std::uint32_t zeros;
  };

  // `memory` has kFixedScaleBytes bytes of shared memory for all warps, aligned to 64 bytes. `w_row` is the row of w
  // that the lane copies: lanes 2 r and 2 r + 1 copy the warp's row r. `first_row` is the first of the two rows whose
  // scales the lane takes. The block's stages are first, …, end - 1.
  __device__ FixedScales(const QuantisedMatrix& w, std::uint32_t memory, int w_row, int first_row, int first, int end)
      : end_(end) {
    const std::uint32_t base = memory + threadIdx.x / kWarp * kWarpBytes;
    const auto copied = static_cast<int>(threadIdx.x % kWarp / 2);
    to_ = start_of(base, copied) ^ threadIdx.x % 2 * 16;
    zeros_to_ = base + kZerosAt + static_cast<std::uint32_t>(copied * kZeroRowBytes) + threadIdx.x % 2 * 4;
    from_ = start_of(base, first_row);
    zeros_from_ = base + kZerosAt + static_cast<std::uint32_t>(first_row * kZeroRowBytes);
    keep_in_register(from_);
    num_groups_ = static_cast<int>(w.num_groups);
    group_ = first / kStages * kStages * kStageFixedGroups + static_cast<int>(threadIdx.x % 2) * 4;
    scales_ = w.scales + (static_cast<std::int64_t>(w_row) * w.num_groups + group_) * 4;
    zeros_ = w.zeros + static_cast<std::int64_t>(w_row) * w.num_groups + group_;
    copy(first);
    if (first % kStages != 0) wait_and_copy(first);
  }

  // Sets `rows` to the stage's scales and zeros of the lane's two rows. The caller calls take() once for each of the
  // block's stages, in order.
  __device__ void take(int stage, Row (&rows)[2]) {
    if (stage % kStages == 0) wait_and_copy(stage);
    const auto place = static_cast<std::uint32_t>(stage) % (2 * kStages);
    const std::uint32_t from = from_ ^ place * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(rows[half].scales[0]), "=f"(rows[half].scales[1])
                   : "r"(from + half * 8 * kScaleRowBytes));
      if constexpr (kZeros) rows[half].zeros = load_shared_u16(zeros_from_ + place * 2 + half * 8 * kZeroRowBytes);
    }
  }

 private:
  // Returns the address of a row's first scales. The scales are swizzled: the address of another scale of the row is
  // the XOR of this address and the scale's offset. So reads of the scales of eight rows have no bank conflicts.
  __device__ static std::uint32_t start_of(std::uint32_t base, int row) {
    return base + static_cast<std::uint32_t>(row * kScaleRowBytes | row / 2 % 4 * 16);
  }
  // Waits for the set of scales that contains `stage`, and begins to copy the next set. The set that has arrived stays
  // in place until the next call.
  __device__ void wait_and_copy(int stage) {
    wait_for_copies<0>();
    __syncwarp();  // after this, all lanes' copies are there, and no lane reads the previous set
    const int next = stage / static_cast<int>(kStages) * static_cast<int>(kStages) + static_cast<int>(kStages);
    if (next < end_) copy(next);
  }
  // Begins to copy the set of scales and zeros that begins with a stage. A lane copies those of four groups. A row's
  // number of groups is a multiple of four, so no copy passes the end of a row.
  __device__ void copy(int stage) {
    const std::uint32_t set = static_cast<std::uint32_t>(stage) / kStages % 2;
    if (group_ < num_groups_) {
      copy_async<16>(to_ ^ set * 32, scales_);
      if constexpr (kZeros) copy_async<4>(zeros_to_ + set * 8, zeros_);
    }
    commit_copies();
    constexpr int kGroups = kStages * kStageFixedGroups;
    group_ += kGroups;
    scales_ += kGroups * 4;
    zeros_ += kGroups;
  }

  int end_;
  std::uint32_t to_;          // address to which the lane copies scales
  std::uint32_t zeros_to_;    // address to which the lane copies zeros
  std::uint32_t from_;        // address of the scales of the lane's first row
  std::uint32_t zeros_from_;  // address of the zeros of that row
  const std::byte* scales_;
  const std::uint8_t* zeros_;
  int group_;  // the first group that the lane copies next
  int num_groups_;
};
template <bool kZeros>
inline constexpr int kFixedScaleBytes = kTileWarps* FixedScales<kZeros>::kWarpBytes;

// The Product (quantised_block.cuh) that multiplies integers. kZeros says whether w has zeros.
template <class T, bool kZeros, int kN>
struct FixedProduct {
  using Element = T;
  static constexpr int kColumns = kStageFixedGroups * kFixedGroup;
  static constexpr int kWeightRowBytes = kColumns / 2;
  static constexpr bool kRounds = false;
  static constexpr bool kLimitsBoxes = false;
  static constexpr bool kRowsFirst = false;
  static constexpr bool kHoldsParts = false;
  // A row of x has two rows of bytes in the ring, and a FixedGroup for each group of a stage.
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes, kStageFixedGroups, 2,
                        kStageFixedGroups* static_cast<int>(sizeof(FixedGroup)), kFixedScaleBytes<kZeros>>;
  static_assert(Ring::kStageBytes % 1024 == 0 && Ring::kStageScaleBytes % 64 == 0,
                "FixedScales needs 64-byte alignment");
  // Thread q of a quad has the rows 4 j + q of x. The sums of a row's high bytes and of its low bytes are in
  // neighbouring registers.
  static constexpr int kRowsOfThread = kN / 4;
  static constexpr int kNextRow = 4;

  // Returns the thread's first row of w in the tile. The eight lanes that read shared memory together have two rows of
  // w, four rows apart. The 16-byte chunks of these rows are in different banks.
  __device__ static int first_weight() {
    const auto row = static_cast<int>(threadIdx.x % kWarp / 4);
    return static_cast<int>(threadIdx.x / kWarp * 16) + row / 2 + row % 2 * 4;
  }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], RingPlace& place, float (&sum)[kN / 2], float (&factor)[2]) {
#pragma unroll
    for (float& total : sum) total = 0;
    factor[0] = factor[1] = 1.0F;
    const auto lane_row = static_cast<int>(threadIdx.x % kWarp / 2);
    int copied_rows[2];
    rows_of_thread(p, at, weight / 16 * 16 + lane_row % 8, copied_rows);
    const int end = at.first + at.count;
    FixedScales<kZeros> scales(p.w, ring.other(), lane_row < 8 ? copied_rows[0] : copied_rows[1], weight % 16, at.first,
                               end);
    Addresses first(ring, weight);
    for (int stage = at.first; stage < end; ++stage) {
      const Addresses here = first.of_slot(place.slot);
      SharedBarrier::wait_at(here.full, place.turn & 1);
      multiply_stage(here, p.shared, scales, stage, sum);
      place.advance(p.stages);
    }
  }

 private:
  static constexpr int kSteps = kFixedGroup / 32;
  using Integers = std::uint32_t[kN];
  using Factors = float[2 * kRowsOfThread];  // for each row of x: the factors of both rows of w
  using ScalesOfRows = typename FixedScales<kZeros>::Row[2];
  struct RowGroups {
    FixedGroup at[kRowsOfThread];
  };

  // The shared-memory addresses at which a thread reads the parts of a slot of the ring.
  struct Addresses {
    std::uint32_t weights;  // 16-byte chunk of the first group in the thread's first row of w
    std::uint32_t rows;     // matrix_word() of x
    std::uint32_t groups;   // FixedGroup of the thread's first row of x
    std::uint32_t full;     // the slot's two barriers
    std::uint32_t empty;

    // Makes the addresses of slot 0.
    __device__ Addresses(const Ring& ring, int weight)
        : weights(ring.weights(0) + (first_chunk<kWeightRowBytes>(weight) ^ threadIdx.x % 4 * 16)),
          rows(matrix_word(ring.rows(0))),
          groups(ring.scales(0) + threadIdx.x % 4 * static_cast<int>(sizeof(FixedGroup))),
          full(ring.weights_full[0].address()),
          empty(ring.empty[0].address()) {
      keep_in_register(weights);
      keep_in_register(rows);
      keep_in_register(groups);
      keep_in_register(full);
      keep_in_register(empty);
    }
    __device__ Addresses of_slot(int slot) const {
      Addresses a = *this;
      const auto slots = static_cast<std::uint32_t>(slot);
      a.weights += slots * Ring::kStageBytes;
      a.rows += slots * (Ring::kStageBytes / 16);
      a.groups += slots * Ring::kStageScaleBytes;
      a.full += slots * sizeof(SharedBarrier);
      a.empty += slots * sizeof(SharedBarrier);
      return a;
    }
  };

  // Converts four of a word's eight int4 to bytes 16 · (w − 8). These four are the upper halves of the word's bytes if
  // kUpper, and otherwise the lower halves.
  template <bool kUpper>
  __device__ static std::uint32_t spread(std::uint32_t word, std::uint32_t signs) {
    std::uint32_t bytes;
    asm("lop3.b32 %0, %1, %2, %3, 0x78;" : "=r"(bytes) : "r"(signs), "r"(kUpper ? word : word << 4), "n"(0xF0F0F0F0u));
    return bytes;
  }

  // Begins the product of one group of a stage. The product's result goes to `part`. The function writes the group's
  // converted weights to `held`, from where the product reads them.
  __device__ static void begin_group(const Addresses& here, int group, std::uint32_t (&held)[kSteps][4],
                                     Integers& part) {
    std::uint32_t signs = 0x80808080u;
    keep_in_register(signs);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t word[kSteps];
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                   : "r"((here.weights ^ static_cast<std::uint32_t>(group * kFixedGroup / 2)) +
                         static_cast<std::uint32_t>(half * 8 * kWeightRowBytes)));
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        held[step][half] = spread<false>(word[step], signs);
        held[step][2 + half] = spread<true>(word[step], signs);
      }
    }
    begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply_int8<2 * kN>(
          part, held[step],
          here.rows + static_cast<std::uint32_t>(group * Ring::kBoxBytes / 16 + step * static_cast<int>(kMatrixStep)),
          step > 0 ? 1 : 0);
    end_products();
  }

  // Loads the scale and the sum of a group of x, for each of the thread's rows.
  __device__ static void load_rows(const Addresses& here, int group, RowGroups& rows) {
#pragma unroll
    for (int j = 0; j < kRowsOfThread; ++j)
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                   : "=f"(rows.at[j].scale), "=r"(rows.at[j].sum)
                   : "r"(here.groups + static_cast<std::uint32_t>((group * kN + j * 4) * sizeof(FixedGroup))));
  }

  // Multiplies the scales of a group of x with those of w. hold() keeps the compiler from moving these multiplications
  // to a later place. They need the loaded scales, so the loads have ended when the caller releases the slot.
  __device__ static void multiply_scales(const RowGroups& rows, const ScalesOfRows& scales, int group,
                                         Factors& factors) {
#pragma unroll
    for (int i = 0; i < 2 * kRowsOfThread; ++i) factors[i] = rows.at[i / 2].scale * scales[i % 2].scales[group];
    hold(factors);
  }

  // Adds a group's product to the sums.
  __device__ static void add_group(const Integers& part, const RowGroups& rows, const Factors& factors,
                                   const ScalesOfRows& scales, int group, float (&sum)[kN / 2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // The product has the weights 16 · (w − 8) in place of 16 · (w − zero), so 16 · (8 − zero) times the sum of x is
      // added. The result fits in 32 bits for zeros of up to 16, the greatest zero that this project's checkpoint
      // readers produce.
      const int moved = kZeros ? 128 - static_cast<int>(scales[half].zeros >> (8 * group) & 255u) * 16 : 0;
#pragma unroll
      for (int j = 0; j < kRowsOfThread; ++j) {
        const int at = 4 * j + 2 * half;
        int total = static_cast<int>(part[at]) * 256 + static_cast<int>(part[at + 1]);
        if constexpr (kZeros) total += moved * rows.at[j].sum;
        sum[4 * (j / 2) + 2 * half + j % 2] += static_cast<float>(total) * factors[2 * j + half];
      }
    }
  }

  // Adds the products of a stage to the sums, and releases the slot. With few rows of x, the products of both groups of
  // the stage run at once. With more rows there are not enough registers for this.
  __device__ static void multiply_stage(const Addresses& here, bool shared, FixedScales<kZeros>& scales, int stage,
                                        float (&sum)[kN / 2]) {
    constexpr int kAtOnce = kN <= 16 ? kStageFixedGroups : 1;
    std::uint32_t held[kAtOnce][kSteps][4];
    Integers part[kAtOnce];
    RowGroups rows[kAtOnce];
    Factors factors[kAtOnce];
    ScalesOfRows of_rows;
#pragma unroll
    for (int first = 0; first < kStageFixedGroups; first += kAtOnce) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) begin_group(here, first + i, held[i], part[i]);
      if (first == 0) scales.take(stage, of_rows);
      const auto load = [&] {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) load_rows(here, first + i, rows[i]);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) multiply_scales(rows[i], of_rows, first + i, factors[i]);
      };
      if constexpr (kN == 8) load();
      wait_for_products<0>();
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) hold(part[i]);
      if constexpr (kN > 8) load();  // reuses the registers of the weights
      if (first + kAtOnce == kStageFixedGroups) {
        __syncwarp();
        Ring::release_at(here.empty, shared);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) add_group(part[i], rows[i], factors[i], of_rows, first + i, sum);
    }
  }
#endif
};

}  // namespace tessera::cuda::quantised
