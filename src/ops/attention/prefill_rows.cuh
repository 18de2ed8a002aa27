// The computing warpgroups of a block of prefill attention (prefill_attention.cuh). Each warpgroup computes kGroupRows
// query rows of one head. It takes either all keys of these rows, or half of every tile of keys.
//
// While a warpgroup turns scores into weights, the tensor cores run two kinds of products: this warpgroup's weights
// times values of the previous tile, and the products of the other warpgroup. Warpgroups with different rows take turns
// at issuing products. So one warpgroup has scores to work on while the other waits for scores. Warpgroups with the
// same rows join their results at the end: each scales its sums by a weight of its own (part_weight()), and the scaled
// sums are added. The weight follows from the warpgroup's running max and the greater of both running maxima.
#pragma once

#include "tessera/ops/attention/prefill_attention.cuh"
#include "tessera/ops/attention/prefill_block.cuh"
#include "tessera/ops/attention/prefill_parts.cuh"
#include "tessera/ops/cuda/async_copy.cuh"
#include "tessera/ops/cuda/cuda_float8.cuh"
#include "tessera/ops/cuda/online_softmax.cuh"

namespace tessera::cuda::prefill {

// One warpgroup that computes. Its rows have the accumulator layout of a product (wgmma.cuh): a warp has 16 rows, and a
// thread has some columns of two of these rows, lane / 4 and lane / 4 + 8.
template <class S, class T>
struct RowsWarpgroup {
  static constexpr int kOutSums = S::kHeadDim / 2;
  static constexpr int kScores = S::kGroupKeys / 2;

  const Attention<T>& p;
  const Shared<S>& shared;
  int warpgroup;
  int warp;  // index within the warpgroup
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  Place<S::kSlots> at = {};
  Place<S::kQuerySlots> query_at = {};
  float widened_scale_log2 = S::kWidens ? p.scale_log2 * scale_or_one(p.scales.keys) : 0;

  float out[kOutSums];
  float scores[kScores];
  std::uint32_t weights[kScores / 2];
  OnlineSoftmax<FastBaseTwo> rows[2];  // each sum of weights is over the thread's keys
  float rescale[2];                    // factor for the sums of all tiles before the newest

  // Computes the work items begin … end - 1.
  __device__ void run(int begin, int end) {
    // Gives the other warpgroup its first turn. In a turn a warpgroup issues products or, with kJoined, writes results.
    if (S::kJoined || warpgroup == kWarpgroups - 1) give_turn(warpgroup ^ 1);
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      const Work w = work_at<S>(p, i, static_cast<int>(block_in_cluster()));
      if (w.is_empty()) continue;
      compute(w);
      give_results(w);
    }
  }

  // Returns the factor of scores, with the scale of the cache's keys.
  __device__ float scale_log2() const { return S::kWidens ? widened_scale_log2 : p.scale_log2; }
  __device__ int row_group() const { return S::kJoined ? 0 : warpgroup; }
  __device__ std::uint32_t queries_at() const {
    return shared.query(query_at.slot) + static_cast<std::uint32_t>(row_group() * S::kGroupQueryBytes);
  }
  // Returns the warpgroup's first key of a tile.
  __device__ int first_key(int tile) const { return tile * S::kKeys + (S::kJoined ? warpgroup * S::kGroupKeys : 0); }
  // Returns the address in the tile's slot at which the matrices of the warpgroup's keys begin.
  __device__ std::uint32_t keys_at(int slot) const {
    return shared.tile(slot) + static_cast<std::uint32_t>(first_key(0) / 8 * S::kTokenGroupBytes);
  }

  __device__ void compute(const Work& w) {
    const int position = w.position + row_group() * kGroupRows;
    const std::uint32_t queries = queries_at();
    shared.query_full[query_at.slot].wait(query_at.parity);
    rows[0].running_max = rows[1].running_max = -1e30F;  // finite, so that rows that see no key of a tile get no NaN
    rows[0].sum = rows[1].sum = 0;
#pragma unroll
    for (float& x : out) x = 0;

    int tile = w.end - 1;
    const int slot = take_tile();
    begin_turn();
    multiply_keys(queries, slot);
    end_turn();
    wait_for_products<0>();
    hold(scores);
    release(slot);
    mask(tile, position);
    weigh();
    rescale[0] = rescale[1] = 1;  // there are no sums yet
    pack_weights();
    if (w.seen % kBoxTokens != 0 && w.has_last_keys()) clear_unseen(w);
    --tile;
    // The first loop takes the tiles with keys after some row's position. The second loop takes the tiles that all rows
    // see, which need no mask. The third loop takes the tiles with keys before some row's window.
#pragma unroll 1
    for (; tile >= w.first && first_key(tile) + S::kGroupKeys > position + 1; --tile)
      step<true>(queries, tile, position);
    const int seen_by_all = S::kWindowed ? position + kGroupRows - p.window : 0;  // first key that the last row sees
#pragma unroll 1
    for (; tile >= w.first && first_key(tile) >= seen_by_all; --tile) step<false>(queries, tile, position);
    if constexpr (S::kWindowed)
#pragma unroll 1
      for (; tile >= w.first; --tile) step<true>(queries, tile, position);
    finish();
  }

  __device__ void give_results(const Work& w) {
    constexpr int kChunks = S::kHeadDim / 8;
    const std::uint32_t staging = queries_at();
    if constexpr (!S::kJoined) {
      sync_warpgroup(warpgroup);  // all warps' products have ended
      if (merge<0, kOutSums>(w)) store<0, kChunks>(w, staging);
    } else if (warpgroup == 0) {
      join<0>();
      if (merge<0, kOutSums / 2>(w)) store<0, kChunks / 2>(w, staging);
    } else {
      join<1>();
      if (merge<kOutSums / 2, kOutSums / 2>(w)) store<kChunks / 2, kChunks / 2>(w, staging + S::kGroupQueryBytes / 2);
    }
    query_at.advance();
  }

  // Merges the warp's results with the results of the tile's other parts. Returns true if the warp has results to
  // store. Otherwise it releases the queries and returns false.
  template <int kFirst, int kSums>
  __device__ bool merge(const Work& w) {
    if (merge_parts<S, kFirst, kSums>(p, w, out, rows, scale_log2())) return true;
    if (lane == 0) shared.query_empty[query_at.slot].arrive();
    return false;
  }

  __device__ void begin_turn() const {
    if constexpr (!S::kJoined) wait_for_turn(warpgroup);
  }
  __device__ void end_turn() const {
    if constexpr (!S::kJoined) give_turn(warpgroup ^ 1);
  }

  // Computes the scores of `tile`, and adds the weighted values of the previous step's tile. The steps go from the last
  // tile to the first, so the previous step's tile is tile + 1.
  template <bool kMask>
  __device__ void step(std::uint32_t queries, int tile, int position) {
    const int keys = take_tile();
    begin_turn();
    multiply_keys(queries, keys);
    rescale_out();
    const int values = take_tile();
    add_values(values);
    end_turn();
    wait_for_products<1>();
    hold(scores);
    release(keys);
    if constexpr (kMask) mask(tile, position);
    weigh();
    wait_for_products<0>();
    hold(out);
    release(values);
    pack_weights();
  }

  // Adds the weighted values of the final step's tile, and finishes the rows' sums.
  __device__ void finish() {
    rescale_out();
    const int values = take_tile();
    add_values(values);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows[h].sum += __shfl_xor_sync(~0U, rows[h].sum, 1);
      rows[h].sum += __shfl_xor_sync(~0U, rows[h].sum, 2);
    }
    wait_for_products<0>();
    hold(out);
    release(values);
  }

  // Returns the slot of the next tile, once the tile has arrived.
  __device__ int take_tile() {
    const int slot = at.slot;
    shared.full[slot].wait(at.parity);
    at.advance();
    return slot;
  }
  __device__ void release(int slot) {
    if (lane != 0) return;
    if constexpr (S::kWidens) {
      shared.empty[slot].arrive();
    } else {
      for (unsigned block = 0; block < kCluster; ++block) arrive_at_block(shared.empty[slot], block);
    }
  }

  __device__ void multiply_keys(std::uint32_t queries, int slot) {
    hold(scores);
    begin_products();
#pragma unroll
    for (int i = 0; i < S::kHeadDim / 16; ++i) {
      const int column = i * 16 / kColumns;  // index of the matrix of 64 columns
      const int offset = column / S::kPanelMatrices * S::kPanelBytes + column % S::kPanelMatrices * kEightRowBytes;
      multiply<T, S::kGroupKeys>(
          scores,
          matrix_at(queries + static_cast<std::uint32_t>(column * kGroupRows * kRowBytes)) + i % 4 * kMatrixStep,
          matrix_at<S::kTokenGroupBytes>(keys_at(slot) + static_cast<std::uint32_t>(offset)) + i % 4 * kMatrixStep, i);
    }
    end_products();
  }

  // Returns the sums of a panel's columns.
  using PanelSums = float[S::kPanelColumns / 2];
  __device__ PanelSums& sums_of(int panel) { return reinterpret_cast<PanelSums&>(out[panel * (S::kPanelColumns / 2)]); }

  __device__ void add_values(int slot) {
    hold(out);
    hold(weights);
    begin_products();
#pragma unroll
    for (int i = 0; i < S::kGroupKeys / 16; ++i)
#pragma unroll
      for (int panel = 0; panel < S::kPanels; ++panel)
        multiply_held<T, S::kPanelColumns, /*kTransposed=*/true>(
            sums_of(panel), &weights[4 * i],
            wide_matrix_at<S::kTokenGroupBytes, kEightRowBytes>(
                keys_at(slot) + static_cast<std::uint32_t>(panel * S::kPanelBytes + i * 2 * S::kTokenGroupBytes)),
            1);
    end_products();
  }

  // Sets the unseen values to zero in the one TMA box that has both seen and unseen values. Unseen values may be NaN,
  // which a weight of 0 would not remove. Only the work item's last tile has such a box. This tile is processed first.
  // If it is the only tile, its values come next in the ring. Otherwise the ring holds the keys of the tile that is
  // processed second, and then the values of the last tile.
  __device__ void clear_unseen(const Work& w) {
    Place<S::kSlots> values = at;
    if (w.end - w.first > 1) values.advance();
    shared.full[values.slot].wait(values.parity);
    const int seen = w.seen - (w.end - 1) * S::kKeys;
    const std::uint32_t box = shared.tile(values.slot) + static_cast<std::uint32_t>(seen / kBoxTokens * S::kBoxBytes);
    constexpr int kRowChunks = kRowBytes / 16;
    constexpr int kPanelChunks = S::kPanelMatrices * kRowChunks;
    constexpr int kTokenChunks = S::kPanels * kPanelChunks;
#pragma unroll
    for (int i = warp * kWarp + lane; i < kBoxTokens * kTokenChunks; i += kWarpgroup) {
      const int token = i / kTokenChunks;
      const int panel = i % kTokenChunks / kPanelChunks;
      const int offset = panel * S::kPanelBytes + token / 8 * S::kTokenGroupBytes +
                         i % kPanelChunks / kRowChunks * kEightRowBytes + token % 8 * kRowBytes + i % kRowChunks * 16;
      if (token >= seen % kBoxTokens) store_four(box + static_cast<std::uint32_t>(offset), 0, 0, 0, 0);
    }
    let_copies_follow();  // products read shared memory through the async proxy, as copies do
    sync_warpgroup(warpgroup);
  }

  // Sets the scores of keys after a row's position or before its window to -inf. `position` is the position of the
  // warpgroup's first row.
  __device__ void mask(int tile, int position) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int last = position + warp * 16 + h * 8 + lane / 4 - first_key(tile) - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (j * 8 + i > last || (S::kWindowed && j * 8 + i <= last - p.window)) scores[4 * j + 2 * h + i] = -INFINITY;
    }
  }

  // Turns scores into weights, relative to the running max.
  __device__ void weigh() {
    float shift[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float parts[4];  // four independent chains, so that fewer maxima wait for the previous one
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j) {
        const float two = fmaxf(scores[4 * j + 2 * h], scores[4 * j + 2 * h + 1]);
        parts[j % 4] = j < 4 ? two : fmaxf(parts[j % 4], two);
      }
      float most = fmaxf(rows[h].running_max, fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3])));
      most = quad_max(most);
      rescale[h] = rows[h].raise(most, scale_log2());
      shift[h] = -most * scale_log2();
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const int h = i / 2 % 2;
      scores[i] = FastBaseTwo::power(fmaf(scores[i], scale_log2(), shift[h]));
      rows[h].sum += scores[i];
    }
  }
  __device__ void pack_weights() {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) weights[i] = pack_two<T>(scores[2 * i], scores[2 * i + 1]);
  }

  __device__ void rescale_out() {
    if (__all_sync(~0U, rescale[0] == 1 && rescale[1] == 1)) return;  // no row's running max has changed
#pragma unroll
    for (int i = 0; i < kOutSums; ++i) out[i] *= rescale[i / 2 % 2];
  }

  // Merges the results of both warpgroups. Each warpgroup merges half of the columns, and passes its sums for the other
  // half to the other warpgroup. A warpgroup writes its sums only after the other warpgroup has read the sums of the
  // previous work item. A warpgroup reads sums only after both warpgroups have written theirs.
  template <int kMine>
  __device__ void join() {
    constexpr int kSums = kOutSums / kWarpgroups;
    const auto place_of = [&](int group) {
      return shared.joined + static_cast<std::uint32_t>(group * S::kGroupJoinBytes + (warp * kWarp + lane) * 16);
    };
    wait_for_turn(warpgroup);
    const std::uint32_t to = place_of(kMine);
    const float* const given = &out[(1 - kMine) * kSums];
    store_four(to, rows[0].running_max, rows[1].running_max, rows[0].sum, rows[1].sum);
#pragma unroll
    for (int i = 0; i < kSums; i += 4)
      store_four(to + (i / 4 + 1) * kJoinStep, given[i], given[i + 1], given[i + 2], given[i + 3]);
    meet_warpgroups();
    const std::uint32_t from = place_of(1 - kMine);
    const float4 other = load_four(from);
    const float other_max[2] = {other.x, other.y};
    const float other_sum[2] = {other.z, other.w};
    float worth[2];
    float other_worth[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float most = fmaxf(rows[h].running_max, other_max[h]);
      worth[h] = rows[h].raise(most, scale_log2());
      other_worth[h] = part_weight<FastBaseTwo>(other_max[h], most, scale_log2());
      rows[h].sum += other_sum[h] * other_worth[h];
    }
    float* const mine = &out[kMine * kSums];
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const float4 x = load_four(from + (i / 4 + 1) * kJoinStep);
      mine[i] = mine[i] * worth[0] + x.x * other_worth[0];
      mine[i + 1] = mine[i + 1] * worth[0] + x.y * other_worth[0];
      mine[i + 2] = mine[i + 2] * worth[1] + x.z * other_worth[1];
      mine[i + 3] = mine[i + 3] * worth[1] + x.w * other_worth[1];
    }
    give_turn(warpgroup ^ 1);
  }

  // Returns the weight of the head's sink. The caller adds it to a row's sum of weights. A sink has no value vector, so
  // the other sums do not change.
  __device__ float sink_of(const Work& w, int row) const {
    if (p.sinks == nullptr) return 0;
    constexpr float kLog2E = 1.44269504088896F;
    return FastBaseTwo::power(p.sinks[w.head] * kLog2E - rows[row].running_max * scale_log2());
  }

  // Writes columns 8 · kFirst … 8 · (kFirst + kChunks) - 1 of the rows to p.out, 16 bytes per store. The columns first
  // go to `staging`, the shared memory of the warpgroup's queries. There a row's 16-byte chunks are swizzled by the
  // row's number.
  template <int kFirst, int kChunks>
  __device__ void store(const Work& w, std::uint32_t staging) {
    constexpr int kWarpRows = 16;
    const std::uint32_t mine = staging + static_cast<std::uint32_t>(warp * kWarpRows * kChunks * 16);
    const float value_scale = S::kWidens ? scale_or_one(p.scales.values) : 1;
    const float scale[2] = {value_scale / (rows[0].sum + sink_of(w, 0)), value_scale / (rows[1].sum + sink_of(w, 1))};
    const auto chunk_at = [&](int row, int chunk) {
      return mine +
             static_cast<std::uint32_t>((row * kChunks + (chunk ^ (row & (kChunks < 8 ? kChunks - 1 : 7)))) * 16);
    };
#pragma unroll
    for (int j = 0; j < kChunks / 2; ++j) {
      const float* const x = &out[4 * kFirst + 8 * j];
      const std::uint32_t matrices[4] = {
          pack_two<T>(x[0] * scale[0], x[1] * scale[0]), pack_two<T>(x[2] * scale[1], x[3] * scale[1]),
          pack_two<T>(x[4] * scale[0], x[5] * scale[0]), pack_two<T>(x[6] * scale[1], x[7] * scale[1])};
      store_matrices<false>(chunk_at(lane % 16, 2 * j + lane / 16), matrices);
    }
    __syncwarp();
    constexpr int kLoads = kWarpRows * kChunks / kWarp;
    uint4 values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) values[i] = load_chunk(chunk_at((i * kWarp + lane) / kChunks, lane % kChunks));
    let_copies_follow();
    __syncwarp();
    if (lane == 0) shared.query_empty[query_at.slot].arrive();
    const int first = w.tile_begin + row_group() * kGroupRows + warp * kWarpRows;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = first + (i * kWarp + lane) / kChunks;
      if (row >= w.query_len) continue;
      T* const to = p.out + (static_cast<std::int64_t>(w.first_row + row) * p.heads + w.head) * S::kHeadDim;
      reinterpret_cast<uint4*>(to)[kFirst + lane % kChunks] = values[i];
    }
  }
};

}  // namespace tessera::cuda::prefill
