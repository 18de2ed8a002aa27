// Computes quantised_linear on Hopper for tiles of 128 rows of x that are rounded to E4M3 (rounded_rows.cuh), with w in
// E4M3. quantised_block.cuh has the rest of the kernel. The kernel is for 65 to a few hundred rows of x, if the product
// has few tiles. Several blocks then split the columns (k) of a tile. cuBLASLt would give each tile to one block, and
// leave most multiprocessors without work: a down projection of Llama-3-8B has 32 tiles, each with 112 stages.
#pragma once

#include "tessera/ops/cuda/rounded_rows.cuh"
#include "tessera/ops/quantised/quantised_block.cuh"

namespace tessera::cuda::quantised {

inline constexpr int kWideRows = 128;  // rows of x in a tile

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Gives a thread the scales of w for a tile. A stage has two scales: one for the thread's first row of w, and one for
// its second row. A lane holds the scales of every 32nd stage. After the first 32 stages, scales are loaded 32 stages
// before they are needed. All lanes call the functions.
class StageScales {
 public:
  // `rows` has the scales of both rows, from the block's first stage on. The block has `count` stages. If w has one
  // scale for each row, `rows` is null, and all scales are 1.
  __device__ StageScales(const float* const (&rows)[2], int count) : rows_{rows[0], rows[1]}, count_(count) { load(0); }

  // Returns the scales of a stage. Call take() once for each stage, in ascending order.
  __device__ float2 take(int stage) {
    if (stage % kWarp == 0) {
      held_ = next_;
      load(stage + kWarp);
    }
    return make_float2(__shfl_sync(~0U, held_.x, stage % kWarp), __shfl_sync(~0U, held_.y, stage % kWarp));
  }

 private:
  __device__ void load(int first) {
    const int stage = first + static_cast<int>(threadIdx.x % kWarp);
    next_ = make_float2(1, 1);
    if (rows_[0] != nullptr && stage < count_) next_ = make_float2(rows_[0][stage], rows_[1][stage]);
  }

  const float* rows_[2];
  int count_;
  float2 held_;
  float2 next_;
};
#endif

// The Product argument of quantised_block() for tiles of kWideRows rows of x. x is wgmma's A operand, so a thread has
// the sums of two rows of x. So a thread needs only two scales of x for a stage, and one scale of w, or two with a
// gate. A warpgroup has registers for the sums of two stages: while it adds one stage's sums, the tensor cores compute
// the other stage's sums. Preconditions: blocks do not share x. Either each row of w has one scale, or each tile of w
// (with a gate, each half of a tile) has one scale for each stage.
template <class T>
struct WideRoundedProduct {
  using Element = T;
  static constexpr int kColumns = kMostStageColumns;
  static constexpr int kWeightRowBytes = kColumns;
  static constexpr bool kRounds = false;
  static constexpr bool kLimitsBoxes = true;
  static constexpr bool kRowsFirst = true;
  static constexpr bool kHoldsParts = true;
  static constexpr int kSums = kTileWeights / 2;  // number of sums of a thread
  using Ring = TileRing<kWideRows, kTileWeights * kWeightRowBytes, 1, 1, sizeof(float)>;

  // Returns the row of the tile whose scales the thread uses. This is row 0 in all threads, because all rows of the
  // tile have the same scales.
  __device__ static int first_weight() { return 0; }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int /*weight*/,
                                  const int (&w_rows)[2], RingPlace& place, float (&sum)[kSums], float (&factor)[2]) {
    const auto* const scales = reinterpret_cast<const float*>(p.w.scales);
    const auto group_rows = static_cast<int>(p.w.format.group_rows);
    const bool by_stage = p.w.num_groups > 1;  // w has a scale for each 128 columns
    const auto of_row = [&](int row) {
      return by_stage ? scales + row / group_rows * p.w.num_groups + at.first : nullptr;
    };
    StageScales of_w({of_row(w_rows[0]), of_row(w_rows[1])}, at.count);
    factor[0] = factor[1] = 1;
#pragma unroll
    for (float& total : sum) total = 0;
    const Addresses first(ring);
    float parts[2][kSums];
    Addresses here[2] = {first, first};
    // Starts the product of the next stage. The sums of this product go to parts[i].
    const auto start = [&](int i) {
      here[i] = first.of_slot(place.slot);
      SharedBarrier::wait_at(here[i].weights_full, place.turn & 1);
      SharedBarrier::wait_at(here[i].rows_full, place.turn & 1);
      begin_products();
#pragma unroll
      for (std::uint32_t d = 0; d < kColumns / 32; ++d)
        multiply_e4m3<kTileWeights>(parts[i], matrix_of_word(here[i].rows + d * kMatrixStep),
                                    matrix_of_word(here[i].weights + d * kMatrixStep), d);
      end_products();
      place.advance(p.stages);
    };
    // Adds parts[i], the sums of a stage whose product has ended, and releases its slot.
    const auto add = [&](int i, const float2& w_scale) {
      hold(parts[i]);
      float of_x[2];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(of_x[half]) : "r"(here[i].scales + half * 32));
      float by[2][2] = {{of_x[0] * w_scale.x, of_x[1] * w_scale.x}, {of_x[0] * w_scale.y, of_x[1] * w_scale.y}};
      hold(by[0]);  // keeps the loads before the release of the slot
      hold(by[1]);
      __syncwarp();
      Ring::release_at(here[i].empty, false);
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
        for (int of = 0; of < 4; ++of) sum[4 * j + of] += parts[i][4 * j + of] * by[j % 2][of / 2];
    };
    // If a loop reads sums, the compiler lets no product continue into the next iteration (ptxas C7514). An iteration
    // therefore processes two stages.
    for (int s = 0; s < at.count; s += 2) {
      start(0);
      if (s + 1 == at.count) {
        const float2 w_scale = of_w.take(s);
        wait_for_products<0>();
        add(0, w_scale);
        break;
      }
      start(1);
      const float2 w_scales[2] = {of_w.take(s), of_w.take(s + 1)};
      wait_for_products<1>();
      add(0, w_scales[0]);
      wait_for_products<0>();
      add(1, w_scales[1]);
    }
  }

 private:
  // The addresses in shared memory at which a thread reads the parts of a slot of the ring.
  struct Addresses {
    std::uint32_t rows;     // matrix_word() of the warpgroup's rows of x
    std::uint32_t weights;  // matrix_word() of w
    std::uint32_t scales;   // scale of the thread's first row of x
    std::uint32_t weights_full;
    std::uint32_t rows_full;
    std::uint32_t empty;

    // Makes the addresses of slot 0.
    __device__ explicit Addresses(const Ring& ring)
        : rows(matrix_word(ring.rows(0) + threadIdx.x / kWarpgroup * 64 * kBoxRowBytes)),
          weights(matrix_word(ring.weights(0))),
          scales(ring.scales(0) + (threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4) * 4),
          weights_full(ring.weights_full[0].address()),
          rows_full(ring.rows_full[0].address()),
          empty(ring.empty[0].address()) {
      keep_in_register(rows);
      keep_in_register(weights);
      keep_in_register(scales);
      keep_in_register(weights_full);
      keep_in_register(rows_full);
      keep_in_register(empty);
    }
    __device__ Addresses of_slot(int slot) const {
      Addresses a = *this;
      const auto slots = static_cast<std::uint32_t>(slot);
      a.rows += slots * (Ring::kStageBytes / 16);
      a.weights += slots * (Ring::kStageBytes / 16);
      a.scales += slots * Ring::kStageScaleBytes;
      a.weights_full += slots * sizeof(SharedBarrier);
      a.rows_full += slots * sizeof(SharedBarrier);
      a.empty += slots * sizeof(SharedBarrier);
      return a;
    }
  };
#endif
};

}  // namespace tessera::cuda::quantised
