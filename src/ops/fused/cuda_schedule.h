// How the threads of a GPU share a row kernel. Every task (row_kernel.h) has blocks of its own; a unit, which is a run
// that is reduced, or else a stretch of a row, is worked on by neighbouring lanes of a warp or by a whole block.
//
//   item   `pack` neighbouring elements, loaded at once; with a rotation those and their partners half a head further
//   unit   `items` of them, `held` in the registers of each of `lanes` threads
//
// All follows from the kernel, nothing from the number of rows: a row has the same bits in every batch.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/fused/row_kernel.h"

namespace tessera {

struct CudaTaskSchedule {
  std::int64_t pack = 1;         // elements
  std::int64_t sites = 1;        // 2 with a rotation: an element and its partner
  std::int64_t row_items = 1;    // items of a row
  std::int64_t items = 1;        // of a unit
  std::int64_t lanes = 1;        // threads of a unit: a power of two up to 32, or all of a block
  std::int64_t held = 1;         // items of a thread
  std::int64_t row_units = 1;    // units of a row
  std::int64_t block_units = 1;  // units of a block
};

struct CudaSchedule {
  std::int64_t threads = 128;       // of a block
  std::int64_t most_threads = 128;  // that the code is compiled for
  std::vector<RowTask> tasks = {};
  std::vector<CudaTaskSchedule> schedules = {};  // [tasks]
};

Result<CudaSchedule> cuda_schedule(const RowKernel& kernel);

// The numbers of threads that a block of the same code may have, the schedule's own first. What a thread computes, and
// the order of every sum, is the same with each. One alone where a whole block adds up.
std::vector<std::int64_t> block_sizes(const CudaSchedule& schedule);
// Precondition: `threads` is one of them.
CudaSchedule with_threads(CudaSchedule schedule, std::int64_t threads);

}  // namespace tessera
