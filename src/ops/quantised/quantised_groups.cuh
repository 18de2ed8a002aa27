// Computes quantised_linear on Hopper for 33 to 128 rows of x, with w in int4 in groups of 128 columns: values u8
// [n, k / 2], scales f32 [n, k / 128], and zeros u8 [n, k / 128] or none. k is a multiple of 128. quantised_block.cuh
// has the rest of the kernel.
//
// Warpgroups convert w exactly, to whole numbers in bfloat16 or float16, and multiply them by x. The sums of a group
// are separate from the tile's sums. When the products of a group have ended, its sums are multiplied by the scales of
// the group, in float32, and added to the tile's sums. The kernel of quantised_tiles.cuh instead multiplies each weight
// by its scale. The multiplication by the scale takes one instruction for two weights, and rounds each weight.
//
// A warpgroup converts weights while the tensor cores multiply the weights that it converted before.
#pragma once

#include "tessera/ops/quantised/quantised_block.cuh"
#include "tessera/ops/quantised/quantised_tiles.cuh"

namespace tessera::cuda::quantised {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Gives a thread the scales and zero points of its two rows of w, for each group. The four lanes of a quad have the
// same rows. Each lane loads the scales and zero points of every fourth group. After the first four groups, a lane
// loads them four groups before they are needed. All lanes call the functions.
template <class T>
class GroupScales {
 public:
  struct OfGroup {
    float scales[2];
    std::uint32_t offsets[2];  // the numbers that exact() subtracts
  };

  // `w_rows` are the thread's two rows of w. The block has `count` groups from `first` on.
  __device__ GroupScales(const QuantisedMatrix& w, const int (&w_rows)[2], int first, int count)
      : w_(w), left_(count - static_cast<int>(threadIdx.x % 4)) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      at_[half] = static_cast<int>(w_rows[half] * w.num_groups) + first + static_cast<int>(threadIdx.x % 4);
    load();
  }

  // Returns the scales and offsets of a group, counted from the block's first group. Call take() once for each group,
  // in ascending order.
  __device__ OfGroup take(int group) {
    if (group % 4 == 0) {
      held_ = next_;
      load();
    }
    const std::uint32_t zeros = __shfl_sync(~0U, held_.zeros, group % 4, 4);
    return {{__shfl_sync(~0U, held_.scales[0], group % 4, 4), __shfl_sync(~0U, held_.scales[1], group % 4, 4)},
            {__byte_perm(zeros, 0, 0x1010), __byte_perm(zeros, 0, 0x3232)}};
  }

 private:
  struct OfRows {
    float scales[2];
    // The lower half is offset_of() of the first row's zero, and the upper half is that of the second row's zero.
    std::uint32_t zeros;
  };

  // Loads the scales and zeros of the lane's next group, if the block has it.
  __device__ void load() {
    next_.zeros = offset_of<T, Values::kInt4>(8);
    if (left_ > 0) {
      const auto* const scales = reinterpret_cast<const float*>(w_.scales);
      next_.scales[0] = scales[at_[0]];
      next_.scales[1] = scales[at_[1]];
      if (w_.zeros != nullptr)
        next_.zeros =
            offset_of<T, Values::kInt4>(0) | w_.zeros[at_[0]] | static_cast<std::uint32_t>(w_.zeros[at_[1]]) << 16;
    }
    left_ -= 4;
    at_[0] += 4;
    at_[1] += 4;
  }

  const QuantisedMatrix& w_;
  int at_[2];  // indices of the scales that the lane loads next
  int left_;
  OfRows held_;
  OfRows next_{};
};
#endif

// The Product (quantised_block.cuh) that applies scales to the sums of groups.
template <class T, int kN>
struct GroupProduct : UsualSums {
  using Element = T;
  static constexpr int kColumns = 128;
  static constexpr int kWeightRowBytes = kColumns / 2;
  static constexpr bool kRounds = false;
  static constexpr bool kLimitsBoxes = false;
  static constexpr bool kHoldsParts = true;
  using Ring = TileRing<kN, kTileWeights * kWeightRowBytes, kColumns * 2 / kBoxRowBytes>;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __device__ static void multiply(const TiledQuantised<T>& p, const TilePlace& at, const Ring& ring, int weight,
                                  const int (&w_rows)[2], RingPlace& place, float (&sum)[kN / 2], float (&factor)[2]) {
    factor[0] = factor[1] = 1;
#pragma unroll
    for (float& total : sum) total = 0;
    const Addresses first(ring, weight);
    GroupScales<T> scales(p.w, w_rows, at.first, at.count);
    Held held[2];
    float parts[kParts][kN / 2];
    Addresses here[2] = {first, first};
    OfGroup of_group[2];
    // Waits for a group and converts its weights to held[i].
    const auto convert_group = [&](int i, int group) {
      of_group[i] = scales.take(group);
      here[i] = first.of_slot(place.slot);
      SharedBarrier::wait_at(here[i].full, place.turn & 1);
      place.advance(p.stages);
      convert(here[i].weights, of_group[i], held[i]);
    };
    // Starts the products of the group in held[i].
    const auto start = [&](int i) {
      begin_products();
      multiply(here[i].rows, held[i], parts[i % kParts]);
      end_products();
    };
    // Releases the slot of a group whose products have ended, and adds its sums.
    const auto add = [&](int i) {
      float(&part)[kN / 2] = parts[i % kParts];
      hold(part);
      __syncwarp();
      Ring::release_at(here[i].empty, p.shared);
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) sum[j] += part[j] * of_group[i].scales[j / 2 % 2];
    };
    convert_group(0, 0);
    // An iteration has two groups, because running products read the weights of one group while the other is converted.
    for (int group = 0; group < at.count; group += 2) {
      start(0);
      if (group + 1 == at.count) {
        wait_for_products<0>();
        add(0);
        break;
      }
      convert_group(1, group + 1);
      if constexpr (kParts == 2) {
        start(1);
        wait_for_products<1>();
        add(0);
      } else {
        wait_for_products<0>();
        add(0);
        start(1);
      }
      if (group + 2 < at.count) convert_group(0, group + 2);
      wait_for_products<0>();
      add(1);
    }
  }

 private:
  static constexpr int kSteps = kColumns / 16;
  // The number of groups whose sums a thread holds. With two, the products of one group run while the sums of the other
  // are added.
  static constexpr int kParts = kN <= 64 ? 2 : 1;

  // The shared-memory addresses at which a thread reads the parts of a slot of the ring.
  struct Addresses {
    std::uint32_t weights;  // the thread's first byte of w
    std::uint32_t rows;     // matrix_word() of x
    std::uint32_t full;     // the slot's two barriers
    std::uint32_t empty;

    // Makes the addresses of slot 0.
    __device__ Addresses(const Ring& ring, int weight)
        : weights(ring.weights(0) + first_chunk<kWeightRowBytes>(weight) + threadIdx.x % 4),
          rows(matrix_word(ring.rows(0))),
          full(ring.weights_full[0].address()),
          empty(ring.empty[0].address()) {
      keep_in_register(weights);
      keep_in_register(rows);
    }
    __device__ Addresses of_slot(int slot) const {
      Addresses a = *this;
      const auto slots = static_cast<std::uint32_t>(slot);
      a.weights += slots * Ring::kStageBytes;
      a.rows += slots * (Ring::kStageBytes / 16);
      a.full += slots * sizeof(SharedBarrier);
      a.empty += slots * sizeof(SharedBarrier);
      return a;
    }
  };
  using OfGroup = typename GroupScales<T>::OfGroup;
  using Held = std::uint32_t[kSteps][4];  // a thread's weights of a group, in the form that multiply_held() takes

  // Converts a thread's weights of a group: two rows of w that are eight rows apart. In each step of 16 columns the
  // thread has columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9, where q is its number in the quad. The thread loads its
  // bytes one by one. Loads of 16 bytes, of which it would keep every fourth byte, are slower.
  __device__ static void convert(std::uint32_t weights, const OfGroup& group, Held& to) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t at = (weights ^ static_cast<std::uint32_t>(step / 2 * 16)) +
                                   static_cast<std::uint32_t>(step % 2 * 8 + i * 4 + half * 8 * kWeightRowBytes);
          to[step][2 * i + half] =
              exact<T, Values::kInt4>(convert_byte<T, Values::kInt4>(load_shared_u8(at)), group.offsets[half]);
        }
  }

  // Starts the products of a converted group.
  __device__ static void multiply(std::uint32_t rows, const Held& held, float (&part)[kN / 2]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      multiply_held<T, kN>(part, held[step],
                           matrix_of_word(rows + static_cast<std::uint32_t>(step / 4 * (Ring::kBoxBytes / 16) +
                                                                            step % 4 * static_cast<int>(kMatrixStep))),
                           step > 0 ? 1 : 0);
  }
#endif
};

}  // namespace tessera::cuda::quantised
