// Stores FA3's results. It replaces FlashInfer's store, which has two races.
//
// First, all threads write rows to shared memory and then meet at a named barrier before rows are copied out. The
// barrier expects one arrival of each thread, but every thread arrives twice, because it calls arrive() and then
// sync(). So the barrier opens after half of the warps, and rows may be copied out that a late warp has not written
// yet. In normal runs no warp is late, because the warps are synchronised just before. Under compute-sanitizer some
// warps are late, and results differ.
//
// Second, with head size 256, where warpgroups do not take turns, the values of the next work item may overwrite rows
// that a late warp has not copied out yet.
#pragma once

#include <flashinfer/attention/hopper/prefill_sm90.cuh>

namespace tessera::flashinfer {

namespace fi = ::flashinfer;

// FA3's epilogue with our store. It does not write the log-sum-exp (LSE), because nothing reads it.
template <class Traits>
struct Fa3Epilogue : fi::CollectiveEpilogue<Traits> {
  using Base = fi::CollectiveEpilogue<Traits>;

  template <class BlockCoord, class SharedStorage, class FragmentO, class FragmentLse, class TiledMma>
  CUTLASS_DEVICE void store(const typename Base::Params& p, const FragmentO& o, const FragmentLse&,
                            SharedStorage& shared, TiledMma mma, int thread, const BlockCoord& coord) {
    const auto wait_for_all = [] {
      cutlass::arch::NamedBarrier::sync(Base::NUM_MMA_THREADS, static_cast<int>(fi::NamedBarriers::kValueEmpty));
    };
    const int tile = cute::get<0>(coord), head = cute::get<1>(coord), first_row = cute::get<3>(coord),
              query_len = cute::get<5>(coord);
    auto rows = cute::make_tensor(cute::make_smem_ptr(shared.smem_o.data()), typename Base::SmemLayoutO{});
    const auto copy = cute::make_tiled_copy_C(typename Base::SmemCopyAtomO{}, mma);
    const auto thread_copy = copy.get_thread_slice(thread);
    auto values = fi::convert_type<typename Base::DTypeO>(o);

    wait_for_all();  // all warps have read V, so rows may overwrite V
    cute::copy(copy, thread_copy.retile_S(values), thread_copy.partition_D(rows));
    wait_for_all();  // all rows are written
    fi::write_tiled<Base::NUM_COPY_THREADS>(p.O_ptr, typename Base::TiledCopyO{}, p.layout_O,
                                            cute::select<0, 1>(typename Base::TileShape_PDV{}), rows, thread, tile,
                                            head, first_row, query_len);
    // After this function, the last warp signals that V may be loaded again. Before it signals, that warp must wait for
    // the other warps. With head sizes below 256 it has already waited for them when the warpgroups took turns.
    if constexpr (Base::HEAD_DIM_VO > 128) wait_for_all();
  }
};

}  // namespace tessera::flashinfer
