// The device-specific part of attention's plan. AttentionPlan calls it on the host before every forward. The planner
// makes the decisions that the device's kernels need, for example how the work is spread over the multiprocessors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/type.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// The properties in which the attention layers of a cache group may differ.
struct AttentionShape {
  ir::DType dtype = ir::DType::kBFloat16;
  ir::DType cache_dtype = ir::DType::kBFloat16;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  // 0: no window
  double softcap = 0;       // 0: no softcap
  bool sinks = false;
  bool wanted_rows_only = false;

  bool operator==(const AttentionShape&) const = default;
};

class AttentionPlanner {
 public:
  virtual ~AttentionPlanner() = default;
  // Plans `batch` and writes its work lists to the step buffer. `wanted_starts`, [requests], is the result of
  // find_wanted_starts() for the batch. It is read only if a shape has wanted_rows_only. `padded_requests` is the
  // number of rows of the decode graph that will run. It is at least the batch's number of requests. Batches of kExtend
  // do not use it. Allocates nothing.
  virtual Status plan(const ForwardBatch& batch, std::span<const std::int32_t> wanted_starts, BatchKind kind,
                      std::int64_t padded_requests) = 0;
  // Returns the name of the kernel that runs attention of this shape, for results and logs.
  virtual std::string_view kernel(const AttentionShape& shape, BatchKind kind) const = 0;
  // Returns the bytes of device memory that the planner holds for its life.
  virtual std::int64_t bytes() const = 0;
};

}  // namespace tessera
