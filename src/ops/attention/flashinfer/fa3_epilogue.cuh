// Stores FA3's results. It replaces FlashInfer's store, which has two races.
//
// First, all threads write rows to shared memory and then meet at a barrier before rows are copied out. That barrier
// expects each thread once, but every thread both arrives and waits there. So it opens after half of the warps, and
// rows may be copied that a late warp has not written yet. In normal runs the warps come together just before and no
// warp is late. Under compute-sanitizer some are late, and results differ.
//
// Second, if warp groups take no turns (head size 256), the next work item's values may overwrite rows that a late warp
// still has to copy.
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

    wait_for_all();  // no warp reads V any more; the rows reuse its memory
    cute::copy(copy, thread_copy.retile_S(values), thread_copy.partition_D(rows));
    wait_for_all();  // all rows are written
    fi::write_tiled<Base::NUM_COPY_THREADS>(p.O_ptr, typename Base::TiledCopyO{}, p.layout_O,
                                            cute::select<0, 1>(typename Base::TileShape_PDV{}), rows, thread, tile,
                                            head, first_row, query_len);
    // Afterwards the last warp signals that V may be loaded again. If warp groups take turns, it has already waited for
    // the others by then.
    if constexpr (Base::HEAD_DIM_VO > 128) wait_for_all();
  }
};

}  // namespace tessera::flashinfer
