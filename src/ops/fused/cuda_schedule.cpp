#include "tessera/ops/fused/cuda_schedule.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tessera/base/ceil_div.h"

namespace tessera {
namespace {

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kBlockThreads = 128;    // threads of a block, if no unit of work needs a whole block
constexpr std::int64_t kMaxUnitThreads = 256;  // maximum number of threads of a unit; a thread may hold several items
constexpr std::int64_t kPackBytes = 16;

// Returns the number of elements in a pack: a power of two that divides every position at which the task reads or
// writes. The number is the greatest such power for which a pack of the task's narrowest type has at most 16 bytes.
std::int64_t pack_of(const RowKernel& kernel, const RowTask& task) {
  std::int64_t pack = 4;
  std::int64_t common = task.width | task.segment | (task.head_dim / 2);
  for (const int id : task.values) {
    const RowValue& value = kernel.values[static_cast<std::size_t>(id)];
    pack = std::max(pack, kPackBytes / static_cast<std::int64_t>(ir::dtype_size(value.dtype)));
    common |= value.width | value.offset;
  }
  return std::min(pack, common & -common);
}

CudaTaskSchedule schedule_task(const RowKernel& kernel, const RowTask& task) {
  CudaTaskSchedule s;
  s.pack = pack_of(kernel, task);
  s.sites = task.head_dim > 0 ? 2 : 1;
  s.row_items = task.width / (s.pack * s.sites);
  const auto power = [](std::int64_t n) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
  };
  if (task.segment == 0) {
    s.items = s.lanes = std::min(kWarp, power(s.row_items));
    s.row_units = ceil_div(s.row_items, s.items);
  } else {
    s.items = task.segment / (s.pack * s.sites);
    s.lanes = s.items <= kWarp ? power(s.items)
                               : ceil_div(ceil_div(s.items, ceil_div(s.items, kMaxUnitThreads)), kWarp) * kWarp;
    s.row_units = task.width / task.segment;
  }
  return s;
}

}  // namespace

Result<CudaSchedule> cuda_schedule(const RowKernel& kernel) {
  std::vector<RowTask> tasks = TRY(row_tasks(kernel));
  CudaSchedule schedule{.threads = kBlockThreads, .tasks = std::move(tasks)};
  for (const RowTask& task : schedule.tasks) {
    schedule.schedules.push_back(schedule_task(kernel, task));
    schedule.threads = std::max(schedule.threads, schedule.schedules.back().lanes);
  }
  for (CudaTaskSchedule& s : schedule.schedules) {
    if (s.lanes > kWarp) s.lanes = schedule.threads;
    s.held = ceil_div(s.items, s.lanes);
    s.block_units = schedule.threads / s.lanes;
  }
  schedule.most_threads = schedule.threads;
  for (const std::int64_t threads : block_sizes(schedule))
    schedule.most_threads = std::max(schedule.most_threads, threads);
  return schedule;
}

std::vector<std::int64_t> block_sizes(const CudaSchedule& schedule) {
  std::vector<std::int64_t> sizes = {schedule.threads};
  if (std::ranges::any_of(schedule.schedules, [](const CudaTaskSchedule& s) { return s.lanes > kWarp; })) return sizes;
  for (const std::int64_t threads : {64, 128, 256, 512})
    if (threads != schedule.threads) sizes.push_back(threads);
  return sizes;
}

CudaSchedule with_threads(CudaSchedule schedule, std::int64_t threads) {
  if (threads == schedule.threads) return schedule;
  schedule.threads = threads;
  for (CudaTaskSchedule& s : schedule.schedules) s.block_units = threads / s.lanes;
  return schedule;
}

}  // namespace tessera
