// Lets the kernel of a linear also add the change of low-rank adapters, so that adapter_add need not run. The change is
// added to the linear's sums in float32, before they are rounded.
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

// A tile's columns of y: eight from `first` on and eight from `second` on.
struct TileColumns {
  int first;
  int second;
};

// Stands for a linear without adapters. It changes nothing.
struct NoChange {
  template <int kEights, bool kGated>
  struct OfTiles {
    __device__ OfTiles(const NoChange&, int) {}
    __device__ void load_b(const TileColumns&) {}
    __device__ void load_t(const TileColumns&) {}
    template <class Sums>
    __device__ void add(const TileColumns&, Sums&) const {}
  };
};

// Adds the change to a warp's sums of tiles. The kernel has eight warps that multiply tiles of sixteen columns of y.
// Warp w adds the change of row w of x, and with kEights = 2 that of row w + 8, by tensor-core products of b and t. t
// is split into two 16-bit numbers, whose sum has at least 16 bits of precision. The first 16 ranks of b and t are
// loaded before the tile's products, because loads take long while weights stream.
template <class T>
struct AdapterChange {
  AdapterAddArgs in;

  // kGated: the second eight columns are of another module than the first.
  template <int kEights, bool kGated>
  class OfTiles {
   public:
    // `rows` is the number of rows of x. May run before the preceding kernels have ended.
    __device__ OfTiles(const AdapterChange& change, int rows) : in_(change.in) {
#pragma unroll
      for (int e = 0; e < kEights; ++e) slots_[e] = row(e) < rows ? in_.table.slots[row(e)] : -1;
    }

    // Loads b for a tile. May run before the preceding kernels have ended.
    __device__ void load_b(const TileColumns& columns) {
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        if (slots_[e] >= 0) b_[e] = part_of_b(e, columns, 0);
    }
    // Loads t for a tile.
    __device__ void load_t(const TileColumns& columns) {
#pragma unroll
      for (int e = 0; e < kEights; ++e)
#pragma unroll
        for (int m = 0; m < kModules; ++m)
          if (slots_[e] >= 0) t_[e][m] = part_of_t(e, module(columns, m), 0);
    }

    // Adds the change to the sums of the tile that was loaded last: with kEights = 1 a sum has rows of w first, else
    // rows of x.
    __device__ void add(const TileColumns& columns, float (&sums)[kEights == 1 ? 1 : 2][2][4]) const {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        if (slots_[e] < 0) continue;
        Modules of;
#pragma unroll
        for (int m = 0; m < kModules; ++m) {
          of.numbers[m] = module(columns, m);
          const std::int32_t at = slots_[e] * in_.modules + of.numbers[m];
          of.ranks[m] = in_.ranks[at];
          of.scales[m] = in_.scales[at];
        }
        add_products(e, of, 0, b_[e], sums);
        for (std::int32_t depth = kDepth; depth < max(of.ranks[0], of.ranks[kModules - 1]); depth += kDepth)
          add_products(e, of, depth, part_of_b(e, columns, depth), sums);
      }
    }

   private:
    static constexpr int kDepth = 16;  // ranks of a product
    static constexpr int kModules = kGated ? 2 : 1;
    struct PartOfB {
      std::uint32_t at[2][2];  // [half of the columns][half of the ranks]: two columns of the lane's rank
    };
    struct PartOfT {
      float at[2][2];  // [half of the ranks]: two neighbouring ranks; zeros unless the lane has the row
    };
    struct Modules {
      std::int32_t numbers[kModules];
      std::int32_t ranks[kModules];
      float scales[kModules];
    };

    __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
    __device__ static int row(int e) { return static_cast<int>(threadIdx.x) / kWarp + e * 8; }

    __device__ std::int32_t module(const TileColumns& columns, int m) const {
      return module_of(in_.ranges, m == 0 ? columns.first : columns.second);
    }

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

    __device__ void add_products(int e, const Modules& of, std::int32_t depth, const PartOfB& of_b,
                                 float (&sums)[kEights == 1 ? 1 : 2][2][4]) const {
      std::uint32_t b[2][2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const bool within = depth + p * 8 + lane() / 4 < of.ranks[kGated ? h : 0];
          b[h][p] = transpose_matrix(within ? of_b.at[h][p] : 0);
        }
      std::uint32_t t[kModules][2][2];  // [module][high and low bits][half of the ranks]
#pragma unroll
      for (int m = 0; m < kModules; ++m) {
        const PartOfT of_t = depth == 0 ? t_[e][m] : part_of_t(e, of.numbers[m], depth);
#pragma unroll
        for (int p = 0; p < 2; ++p) {
          const float v0 = of_t.at[p][0] * of.scales[m];
          const float v1 = of_t.at[p][1] * of.scales[m];
          t[m][0][p] = pack_two<T>(v0, v1);
          const float2 high = unpack_two<T>(t[m][0][p]);
          t[m][1][p] = pack_two<T>(v0 - high.x, v1 - high.y);
        }
      }
#pragma unroll
      for (int bits = 0; bits < 2; ++bits) {
        if constexpr (kEights == 1 && !kGated) {
          multiply_tile<T>(sums[0][bits], {b[0][0], b[1][0], b[0][1], b[1][1]}, t[0][bits][0], t[0][bits][1]);
        } else if constexpr (kEights == 1) {
          multiply_tile<T>(sums[0][bits], {b[0][0], 0, b[0][1], 0}, t[0][bits][0], t[0][bits][1]);
          multiply_tile<T>(sums[0][bits], {0, b[1][0], 0, b[1][1]}, t[1][bits][0], t[1][bits][1]);
        } else {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const std::uint32_t(&of_x)[2] = t[kGated ? h : 0][bits];
            if (e == 0) {
              multiply_tile<T>(sums[h][bits], {of_x[0], 0, of_x[1], 0}, b[h][0], b[h][1]);
            } else {
              multiply_tile<T>(sums[h][bits], {0, of_x[0], 0, of_x[1]}, b[h][0], b[h][1]);
            }
          }
        }
      }
    }

    const AdapterAddArgs& in_;
    std::int32_t slots_[kEights];  // negative: the row has no adapter
    PartOfB b_[kEights];
    PartOfT t_[kEights][kModules];
  };
};

}  // namespace tessera::cuda
