// Lets a linear's kernel also add the change that low-rank adapters make, so that the operator adapter_add
// (adapter_linear.h) need not run. Like adapter_add, the kernel rounds the linear's value before it adds the change.
#pragma once

#include <cstdint>

#include "tessera/ops/adapters/adapter_linear.h"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/tensor_core.cuh"

namespace tessera::cuda {

// Returns the module that a column of y belongs to.
__device__ inline std::int32_t module_of(const AdapterRanges& ranges, std::int64_t column) {
  std::int32_t i = 0;
  while (i + 1 < ranges.count && column >= ranges.ends[i]) ++i;
  return ranges.modules[i];
}

// A tile's sixteen columns of y: eight from `first` on and eight from `second` on. With a gate, the first eight are
// columns of the gate and the second eight are columns of the up projection. Otherwise the second eight follow the
// first eight.
struct TileColumns {
  int first;
  int second;
};

// Takes the place of AdapterChange in a linear without adapters. It changes nothing.
struct NoChange {
  template <int kEights, bool kGated>
  struct OfTiles {
    struct Results {
      __device__ float at(int, int) const { return 0; }
    };
    __device__ OfTiles(const NoChange&, int) {}
    __device__ void load_b(const TileColumns&) {}
    __device__ void load_t(const TileColumns&) {}
    __device__ void store(const TileColumns&, Results&) const {}
  };
  __device__ static float changed(float y, float) { return y; }
};

template <class T>
struct AdapterChange {
  AdapterAddArgs in;

  __device__ static float changed(float y, float change) { return rounded<T>(y) + change; }

  // Computes the change for tiles of sixteen columns of y, from the t and b of adapter_add (adapter_linear.h). Eight
  // warps of the kernel take part. Warp w computes the change of row w of x and, if kEights is 2, also that of row w +
  // 8. Tensor cores multiply b by t. Each value of t is split into two 16-bit numbers (split_two()). b and t are loaded
  // before the linear's products for the tile, because these loads take long while the linear's weights are streamed
  // from memory. If kGated is true, the first eight columns belong to one module and the other eight to another.
  template <int kEights, bool kGated>
  class OfTiles {
   public:
    // The change of a tile, in shared memory. Where an adapter changes nothing, the change is −0, because adding −0 to
    // a number keeps all its bits.
    struct Results {
      float values[kEights * 8][16];  // [row of x][column of the tile]
      __device__ float at(int row, int column) const { return values[row][column]; }
    };

    // `rows` is the number of rows of x. The constructor may run before the preceding kernels have ended.
    __device__ OfTiles(const AdapterChange& change, int rows) : in_(change.in) {
#pragma unroll
      for (int e = 0; e < kEights; ++e) slots_[e] = row(e) < rows ? in_.table.slots[row(e)] : -1;
    }

    // Loads b for a tile. This function may run before the preceding kernels have ended.
    __device__ void load_b(const TileColumns& columns) {
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        if (slots_[e] >= 0) b_[e] = part_of_b(e, columns, 0);
    }
    // Loads t, ranks and scales for a tile.
    __device__ void load_t(const TileColumns& columns) {
#pragma unroll
      for (int e = 0; e < kEights; ++e)
#pragma unroll
        for (int m = 0; m < kModules; ++m) {
          if (slots_[e] < 0) continue;
          const std::int32_t module = module_at(columns, m);
          const std::int32_t at = slots_[e] * in_.modules + module;
          ranks_[e][m] = in_.ranks[at];
          scales_[e][m] = in_.scales[at];
          t_[e][m] = part_of_t(e, module, 0);
        }
    }

    // Writes the warp's rows of the change, for the tile that was loaded last.
    __device__ void store(const TileColumns& columns, Results& results) const {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        __syncwarp();  // reconverges the warp after `continue`, because all lanes must multiply
        Sums sums = {};
        if (slots_[e] >= 0) {
          add_products(e, columns, 0, b_[e], sums);
          for (std::int32_t depth = kDepth; depth < max(ranks_[e][0], ranks_[e][kModules - 1]); depth += kDepth)
            add_products(e, columns, depth, part_of_b(e, columns, depth), sums);
        }
        // multiply_tile() gives each lane four sums, for two columns of y and two neighbouring rows of x. Only the
        // lanes with sums of the warp's own row store results.
        if (lane() % 4 != row(0) / 2) continue;
#pragma unroll
        for (int h = 0; h < 2; ++h)
          results.values[row(e)][h * 8 + lane() / 4] =
              slots_[e] < 0 || ranks_[e][kGated ? h : 0] == 0
                  ? -0.0F
                  : scales_[e][kGated ? h : 0] * (row(0) % 2 == 0 ? sums[h * 2] : sums[h * 2 + 1]);
      }
    }

   private:
    static constexpr int kDepth = 16;  // columns of t (the adapter's inner dimension) that one product covers
    static constexpr int kModules = kGated ? 2 : 1;
    using Sums = float[4];  // results of multiply_tile(): sixteen columns of y by eight rows of x
    struct PartOfB {
      std::uint32_t at[2][2];  // [half of y's columns][half of kDepth]; a word packs two neighbouring columns of b
    };
    struct PartOfT {
      float at[2][2];  // [half of kDepth][one of two neighbouring columns of t]; zeros in lanes without the warp's row
    };

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
    // Returns the index of the module of the tile's first eight columns (m = 0) or second eight (m = 1).
    __device__ std::int32_t module_at(const TileColumns& columns, int m) const {
      return module_of(in_.ranges, m == 0 ? columns.first : columns.second);
    }
    __device__ static int row(int e) { return static_cast<int>(threadIdx.x) / kWarp + e * 8; }

    __device__ PartOfB part_of_b(int e, const TileColumns& columns, std::int32_t depth) const {
      PartOfB part;
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const std::int32_t r = depth + p * 8 + lane() / 4;
          const int column = (h == 0 ? columns.first : columns.second) + lane() % 4 * 2;
          const T* const from =
              static_cast<const T*>(in_.b) + (std::int64_t{slots_[e]} * in_.rank + r) * in_.cols + column;
          part.at[h][p] = r < in_.rank ? *reinterpret_cast<const std::uint32_t*>(from) : 0;
        }
      return part;
    }

    __device__ PartOfT part_of_t(int e, std::int32_t module, std::int32_t depth) const {
      PartOfT part = {};
      if (lane() / 4 != row(0)) return part;
      const float* const t = in_.t + (std::int64_t{row(e)} * in_.modules + module) * in_.rank;
#pragma unroll
      for (int p = 0; p < 2; ++p)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::int32_t r = depth + p * 8 + lane() % 4 * 2 + i;
          if (r < in_.rank) part.at[p][i] = t[r];
        }
      return part;
    }

    __device__ void add_products(int e, const TileColumns& columns, std::int32_t depth, const PartOfB& part,
                                 Sums& sums) const {
      std::uint32_t b[2][2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const bool within = depth + p * 8 + lane() / 4 < ranks_[e][kGated ? h : 0];
          b[h][p] = transpose_matrix(within ? part.at[h][p] : 0);
        }
#pragma unroll
      for (int m = 0; m < kModules; ++m) {
        const PartOfT t = depth == 0 ? t_[e][m] : part_of_t(e, module_at(columns, m), depth);
        const SplitPair low = split_two<T>(t.at[0][0], t.at[0][1]);
        const SplitPair high = split_two<T>(t.at[1][0], t.at[1][1]);
        const bool first = !kGated || m == 0;
        const bool second = !kGated || m == 1;
        const std::uint32_t rows[4] = {first ? b[0][0] : 0, second ? b[1][0] : 0, first ? b[0][1] : 0,
                                       second ? b[1][1] : 0};
        multiply_tile<T>(sums, rows, low.rounded, high.rounded);
        multiply_tile<T>(sums, rows, low.rest, high.rest);
      }
    }

    const AdapterAddArgs& in_;
    std::int32_t slots_[kEights];  // negative: the row has no adapter
    std::int32_t ranks_[kEights][kModules];
    float scales_[kEights][kModules];
    PartOfB b_[kEights];
    PartOfT t_[kEights][kModules];
  };
};

}  // namespace tessera::cuda
