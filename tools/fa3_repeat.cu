// Checks, outside of the engine, whether FlashInfer's FA3 over a paged cache gives the same bits at every launch. Runs
// one launch N times into poisoned outputs. Compares each output with the first one bit for bit, and the first one with
// a plain reference.
//
//   nvcc -O3 -std=c++20 -arch=sm_90a --expt-relaxed-constexpr -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -Iinclude
//        -Ibuild/third_party/flashinfer/include -Ibuild/third_party/flashinfer/cutlass tools/fa3_repeat.cu -o
//        fa3_repeat
//   compute-sanitizer --tool memcheck ./fa3_repeat 40
//
// FlashInfer's own epilogue differs in 29 of 39 launches under the tool, and in none without it. With -DOWN_EPILOGUE,
// which uses the engine's epilogue (ops/attention/flashinfer/fa3_epilogue.cuh), no launch differs. -DHEAD_DIM=64 or 256
// selects other head sizes.
//
//   fa3_repeat N [sync] [single] [one] [seed=S]
//     sync    wait after each launch, else 8 launches back to back
//     single  one block for each work item, else 132 persistent blocks
//     one     all requests within one tile of keys
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

#ifdef OWN_EPILOGUE
#include "tessera/ops/attention/flashinfer/fa3_epilogue.cuh"
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#ifndef HEAD_DIM
#define HEAD_DIM 128
#endif

namespace fi = ::flashinfer;
using bf16 = __nv_bfloat16;

constexpr int kD = HEAD_DIM;
constexpr int kTileRows = kD == 64 ? 192 : 128;
constexpr int kTileKeys = kD == 256 ? 32 : 96;
constexpr int kHeads = 8, kKvHeads = 4, kPage = 16, kRing = 8;

#define CHECK(x)                                                                    \
  do {                                                                              \
    cudaError_t e = (x);                                                            \
    if (e != cudaSuccess) {                                                         \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e)); \
      std::exit(2);                                                                 \
    }                                                                               \
  } while (0)

struct Work {
  int request, tile, head;
};

struct Scheduler {
  struct Params {
    const int* starts;
    const Work* works;
    const int* query_starts;
    const int* kv_lens;
    int max_pages;
    int group;
  };
  struct WorkTileInfo {
    int at, end;
    CUTLASS_DEVICE bool is_valid(const Params&) const { return at < end; }
    CUTLASS_DEVICE auto get_block_coord(const Params& p) const {
      const Work w = p.works[at];
      const int begin = p.query_starts[w.request];
      return cute::tuple{w.tile,
                         w.head,
                         w.head / p.group,
                         begin,
                         w.request * p.max_pages,
                         p.query_starts[w.request + 1] - begin,
                         p.kv_lens[w.request],
                         w.request};
    }
  };
  CUTLASS_DEVICE WorkTileInfo get_initial_work(const Params& p) const {
    return {p.starts[blockIdx.x], p.starts[blockIdx.x + 1]};
  }
  template <bool is_producer = false>
  CUTLASS_DEVICE WorkTileInfo get_next_work(const Params&, const WorkTileInfo& w) const {
    return {w.at + 1, w.end};
  }
  CUTLASS_DEVICE void init_consumer() const {}
  CUTLASS_DEVICE void prefetch_next_work(const Params&, WorkTileInfo&) const {}
  CUTLASS_DEVICE void broadcast_next_work(WorkTileInfo&) const {}
};

struct Scale {
  float sm_scale;
};

// Uses one warp for each row and head.
__global__ void reference(const bf16* q, const bf16* k, const bf16* v, const int* pages, const int* query_starts,
                          const int* kv_lens, const int* request_of, int max_pages, int rows, float scale, float* out) {
  const int id = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (id >= rows * kHeads) return;
  const int row = id / kHeads, head = id % kHeads, kv_head = head / (kHeads / kKvHeads), r = request_of[row];
  const int seen = kv_lens[r] - (query_starts[r + 1] - query_starts[r]) + row - query_starts[r] + 1;
  constexpr int kPer = kD / 32;
  float qs[kPer], acc[kPer] = {}, m = -INFINITY, sum = 0;
  for (int i = 0; i < kPer; ++i) qs[i] = __bfloat162float(q[(size_t)(row * kHeads + head) * kD + i * 32 + lane]);
  for (int key = 0; key < seen; ++key) {
    const size_t at =
        ((size_t)(pages[r * max_pages + key / kPage] * kPage + key % kPage) * kKvHeads + kv_head) * kD + lane;
    float s = 0;
    for (int i = 0; i < kPer; ++i) s += qs[i] * __bfloat162float(k[at + i * 32]);
    for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
    s *= scale;
    const float next = fmaxf(m, s), old = expf(m - next), p = expf(s - next);
    m = next;
    sum = sum * old + p;
    for (int i = 0; i < kPer; ++i) acc[i] = acc[i] * old + p * __bfloat162float(v[at + i * 32]);
  }
  for (int i = 0; i < kPer; ++i) out[(size_t)(row * kHeads + head) * kD + i * 32 + lane] = acc[i] / sum;
}

template <class T>
T* upload(const std::vector<T>& h) {
  T* d;
  CHECK(cudaMalloc(&d, h.size() * sizeof(T)));
  CHECK(cudaMemcpy(d, h.data(), h.size() * sizeof(T), cudaMemcpyHostToDevice));
  return d;
}

float f(bf16 x) { return __bfloat162float(x); }

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 100;
  bool sync = false, single = false, one = false;
  unsigned seed = 1;
  std::string modes;
  for (int i = 2; i < argc; ++i) {
    const std::string a = argv[i];
    sync |= a == "sync", single |= a == "single", one |= a == "one";
    if (a.rfind("seed=", 0) == 0) seed = std::atoi(a.c_str() + 5);
    modes += " " + a;
  }

  // The requests as {query rows, keys}, with odd lengths.
  std::vector<std::pair<int, int>> lens;
  if (one) {
    for (int i = 0; i < 60; ++i) {
      const int kv = 1 + (i * 37 + 12) % (kTileKeys - 1);
      lens.push_back({1 + (i * 17) % kv, kv});
    }
  } else {
    for (int i = 0; i < 4; ++i)
      for (std::pair<int, int> p : std::vector<std::pair<int, int>>{
               {1, 701}, {129, 129}, {301, 1001}, {77, 77}, {513, 513}, {201, 333}, {33, 951}, {257, 641}})
        lens.push_back({p.first + (p.first > 1 ? i : 0), p.second + 7 * i});
  }
  std::mt19937 gen(seed);
  const int requests = (int)lens.size();
  std::vector<int> query_starts{0}, kv_lens, request_of;
  int max_pages = 0, num_pages = 0;
  for (int r = 0; r < requests; ++r) {
    query_starts.push_back(query_starts.back() + lens[r].first);
    kv_lens.push_back(lens[r].second);
    for (int i = 0; i < lens[r].first; ++i) request_of.push_back(r);
    const int pages = (lens[r].second + kPage - 1) / kPage;
    max_pages = std::max(max_pages, pages);
    num_pages += pages;
  }
  const int rows = query_starts.back();
  std::vector<int> permuted(num_pages);
  std::iota(permuted.begin(), permuted.end(), 0);
  std::shuffle(permuted.begin(), permuted.end(), gen);
  std::vector<int> pages((size_t)requests * max_pages, 0);
  for (int r = 0, next = 0; r < requests; ++r)
    for (int i = 0; i * kPage < kv_lens[r]; ++i) pages[(size_t)r * max_pages + i] = permuted[next++];

  const auto noise = [&](size_t count, float by) {
    std::uniform_real_distribution<float> u(-by, by);
    std::vector<bf16> h(count);
    for (bf16& x : h) x = __float2bfloat16(u(gen));
    return h;
  };
  const size_t out_count = (size_t)rows * kHeads * kD, kv_count = (size_t)num_pages * kPage * kKvHeads * kD;
  bf16* q = upload(noise(out_count, 2));
  bf16* k = upload(noise(kv_count, 2));
  bf16* v = upload(noise(kv_count, 1));
  int* d_pages = upload(pages);
  int* d_query_starts = upload(query_starts);
  int* d_kv_lens = upload(kv_lens);

  // Work items in descending order of their keys, dealt out in turn.
  std::vector<std::pair<int, Work>> all;
  for (int r = 0; r < requests; ++r)
    for (int t = 0; t * kTileRows < lens[r].first; ++t)
      for (int h = 0; h < kHeads; ++h)
        all.push_back({kv_lens[r] - lens[r].first + std::min(lens[r].first, (t + 1) * kTileRows), {r, t, h}});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const int grid = single ? (int)all.size() : 132;
  std::vector<int> starts{0};
  std::vector<Work> works;
  for (int b = 0; b < grid; ++b) {
    for (size_t i = b; i < all.size(); i += grid) works.push_back(all[i].second);
    starts.push_back((int)works.size());
  }
  int* d_starts = upload(starts);
  Work* d_works = upload(works);

  using Element = fi::cutlass_dtype_t<bf16>;
  using Traits = fi::AttentionKernelTraits<false, kD, kD, kTileRows, kTileKeys, 2, Element, Element, Element,
                                           std::int32_t, fi::StandardAttention>;
  using Mainloop = fi::SparseCollectiveMainloop<Scale, Traits, true>;
#ifdef OWN_EPILOGUE
  using Epilogue = tessera::flashinfer::Fa3Epilogue<Traits>;
#else
  using Epilogue = fi::CollectiveEpilogue<Traits>;
#endif
  constexpr auto kKernel = fi::PrefillWithKVCacheKernel<Mainloop, Epilogue, Traits, false, true, Scheduler>;
  constexpr int kBytes = sizeof(typename Traits::SharedStorage);
  CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kKernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kBytes));
  const auto layout = [&](int tokens, int heads) { return fi::get_gmem_layout(tokens, heads, kD, heads * kD, kD); };
  const float scale = 1.0f / std::sqrt((float)kD);
  const std::int64_t page_stride = (std::int64_t)kPage * kKvHeads * kD;
  const auto mainloop = Mainloop::to_underlying_arguments(
      {reinterpret_cast<const Element*>(q), layout(rows, kHeads), reinterpret_cast<const Element*>(k),
       layout(0, kKvHeads), reinterpret_cast<const Element*>(v), layout(0, kKvHeads), d_pages, -1, page_stride,
       page_stride, (std::uint32_t)kPage, Scale{scale}});
  const Scheduler::Params scheduler{d_starts, d_works, d_query_starts, d_kv_lens, max_pages, kHeads / kKvHeads};

  bf16* out[kRing];
  for (bf16*& o : out) CHECK(cudaMalloc(&o, out_count * sizeof(bf16)));
  bf16 *first, *now;
  CHECK(cudaMallocHost(&first, out_count * sizeof(bf16)));
  CHECK(cudaMallocHost(&now, out_count * sizeof(bf16)));

  float* d_ref;
  CHECK(cudaMalloc(&d_ref, out_count * sizeof(float)));
  reference<<<(rows * kHeads + 7) / 8, 256>>>(q, k, v, d_pages, d_query_starts, d_kv_lens, upload(request_of),
                                              max_pages, rows, scale, d_ref);
  CHECK(cudaDeviceSynchronize());
  std::vector<float> ref(out_count);
  CHECK(cudaMemcpy(ref.data(), d_ref, out_count * sizeof(float), cudaMemcpyDeviceToHost));
  // Counts NaNs, and elements whose error exceeds what the rounding of P and O allows.
  const auto wrong = [&](const bf16* o) {
    size_t count = 0;
    for (size_t i = 0; i < out_count; ++i) count += !(std::fabs(f(o[i]) - ref[i]) < 0.03f);
    return count;
  };

  constexpr int kPerRow = kD / 8;  // 16-byte pieces of a row
  constexpr int kPassRows = (Traits::NUM_WARPS * 32 - 128) / kPerRow;
  int differing = 0;
  // (warp that wrote it, warp that read it) -> number of differing 16-byte pieces.
  std::map<std::pair<int, int>, int> pieces;
  for (int done = 0; done < n; done += kRing) {
    const int count = std::min(kRing, n - done);
    for (int i = 0; i < count; ++i) CHECK(cudaMemsetAsync(out[i], 0xFF, out_count * sizeof(bf16)));
    for (int i = 0; i < count; ++i) {
      const auto epilogue = Epilogue::to_underlying_arguments(
          {reinterpret_cast<Element*>(out[i]), layout(rows, kHeads), nullptr, fi::get_lse_gmem_layout(rows, kHeads)});
      kKernel<<<grid, Traits::NUM_WARPS * 32, kBytes>>>(mainloop, epilogue, scheduler);
      CHECK(cudaGetLastError());
      if (sync) CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < count; ++i) {
      bf16* to = done + i == 0 ? first : now;
      CHECK(cudaMemcpy(to, out[i], out_count * sizeof(bf16), cudaMemcpyDeviceToHost));
      if (done + i == 0) continue;
      if (std::memcmp(first, now, out_count * sizeof(bf16)) == 0) continue;
      ++differing;
      float most = 0;
      std::map<std::string, int> places;
      for (size_t piece = 0; piece < out_count / 8; ++piece) {
        if (std::memcmp(first + piece * 8, now + piece * 8, 16) == 0) continue;
        for (size_t e = piece * 8; e < piece * 8 + 8; ++e) {
          const float d = std::fabs(f(first[e]) - f(now[e]));
          most = std::isnan(d) ? INFINITY : std::max(most, d);
        }
        const int row = (int)(piece / (kHeads * kPerRow)), head = (int)(piece / kPerRow) % kHeads;
        const int r = request_of[row], in_request = row - query_starts[r], in_tile = in_request % kTileRows;
        const int reader = ((in_tile % kPassRows) * kPerRow + (int)(piece % kPerRow)) / 32;
        ++pieces[{in_tile / 16, reader}];
        char text[128];
        std::snprintf(text, sizeof text, "request %d (%d rows, %d keys) tile %d head %d rows of tile %d..%d", r,
                      lens[r].first, lens[r].second, in_request / kTileRows, head, in_tile / 16 * 16,
                      in_tile / 16 * 16 + 15);
        ++places[text];
      }
      if (differing <= 5) {
        std::printf("  launch %d: max |difference| %g; beyond tolerance of reference: %zu here, %zu in the first\n",
                    done + i, most, wrong(now), wrong(first));
        int shown = 0;
        for (const auto& [text, pieces_here] : places)
          if (shown++ < 4) std::printf("    %s: %d pieces of 16 bytes\n", text.c_str(), pieces_here);
        if (places.size() > 4) std::printf("    and %zu places more\n", places.size() - 4);
      }
    }
  }
  float worst = 0;
  for (size_t i = 0; i < out_count; ++i) {
    const float d = std::fabs(f(first[i]) - ref[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  for (const auto& [who, count] : pieces)
    std::printf("  written by warp %d, read by warp %d: %d pieces differ\n", who.first, who.second, count);
  std::printf(
      "d%d%s: %d of %d launches differ; %zu works on %d blocks; first against reference: max error %g, %zu "
      "elements beyond 0.03\n",
      kD, modes.c_str(), differing, n - 1, works.size(), grid, worst, wrong(first));
  return differing != 0;
}
