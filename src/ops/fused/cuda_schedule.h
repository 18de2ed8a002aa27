// A CudaSchedule divides a row kernel's work among the threads of a GPU. A row kernel (row_kernel.h) consists of tasks,
// which are groups of values that one block can compute together. Every task has blocks of its own. Its
// CudaTaskSchedule divides a row into units, and a unit into items:
//
//   unit   a sequence of elements that are reduced together or, if nothing is reduced, a part of a row. A unit has
//          `items` items. Neighbouring lanes of a warp, or a whole block, work on one unit. There are `lanes` of these
//          threads, and each has `held` items in registers.
//   item   `pack` neighbouring elements, which a thread loads at once. With a rotation an item also has the elements
//          that lie half a head after them.
//
// The schedule depends on the kernel alone and not on the number of rows, so a row has the same bits in every batch.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/ops/fused/row_kernel.h"

namespace tessera {

struct CudaTaskSchedule {
  std::int64_t pack = 1;         // elements in an item
  std::int64_t sites = 1;        // elements that are rotated together: 2 with a rotation (an element and its partner),
                                 // else 1
  std::int64_t row_items = 1;    // items in a row
  std::int64_t items = 1;        // items in a unit
  std::int64_t lanes = 1;        // threads that work on a unit: a power of two up to 32, or all threads of a block
  std::int64_t held = 1;         // items that each thread holds
  std::int64_t row_units = 1;    // units in a row
  std::int64_t block_units = 1;  // units in a block
};

struct CudaSchedule {
  std::int64_t threads = 128;       // threads in a block
  std::int64_t most_threads = 128;  // maximum number of threads in a block for which the code is compiled
  std::vector<RowTask> tasks = {};
  std::vector<CudaTaskSchedule> schedules = {};  // one schedule for each task
};

Result<CudaSchedule> cuda_schedule(const RowKernel& kernel);

// Returns the numbers of threads per block with which the compiled code may be launched. The schedule's own number is
// the first. The number changes neither what a thread computes nor the order of a sum. If a whole block adds up a unit,
// only one number is possible.
std::vector<std::int64_t> block_sizes(const CudaSchedule& schedule);
// Returns the schedule with another number of threads. Precondition: `threads` is one of block_sizes().
CudaSchedule with_threads(CudaSchedule schedule, std::int64_t threads);

}  // namespace tessera
