// The plan of operators that keep one state for each sequence and layer. The layers of these operators form a *state*
// cache group. The plan holds the lengths of the forward's requests, and the slot of each request's state. Kernels read
// both from device memory when they run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/batch_lengths.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/contract/op_plan.h"

namespace tessera {

// Arrays in device memory, at the same addresses for the plan's life.
struct StateMetadata {
  RequestLengths lengths;
  // [max_requests]: the slot of each request's state. No two requests share a slot other than 0. Slot 0 belongs to no
  // sequence and is neither read nor written. Warm-up and measurement batches use slot 0 for all requests.
  const std::int32_t* slots = nullptr;
  // [max_requests]: the number of draft rows at the end of each request. Draft rows do not change the state. Instead,
  // the slot holds them until the request's next forward.
  const std::int32_t* drafts = nullptr;
  // [max_requests]: how many of the draft rows in the slot were accepted. The state is advanced over these rows before
  // the forward's own rows.
  const std::int32_t* accepted = nullptr;
  // [max_requests]: after how many of the request's rows its state is also stored in slot checkpoint_slots[b]
  // (StateCheckpoint). 0: never.
  const std::int32_t* checkpoint_rows = nullptr;
  const std::int32_t* checkpoint_slots = nullptr;
  std::int64_t max_requests = 0;

  // These functions describe request b. Precondition: the caller can read the device's memory.
  std::int64_t first_row(std::int64_t b) const { return lengths.query_starts[b]; }
  std::int64_t num_rows(std::int64_t b) const { return lengths.query_starts[b + 1] - lengths.query_starts[b]; }
  // Returns the position of the request's first row in its sequence.
  std::int64_t first_position(std::int64_t b) const { return lengths.kv_lens[b] - num_rows(b); }
  // Returns how many of the request's first rows change its state. This number is at least 1.
  std::int64_t kept_rows(std::int64_t b) const { return num_rows(b) - drafts[b]; }
  bool keeps_state(std::int64_t b) const { return slots[b] != 0; }
  // Returns whether the request starts from a zero state. This is so if the request's first token is in this forward,
  // and also if the request has no state. In the first case the slot may still hold the state of an earlier sequence,
  // which is not read.
  bool starts_anew(std::int64_t b) const { return lengths.kv_lens[b] == num_rows(b) || !keeps_state(b); }
  std::int64_t accepted_drafts(std::int64_t b) const { return starts_anew(b) ? 0 : accepted[b]; }
};

class StatePlan final : public OpPlan {
 public:
  // Makes a plan. Returns kInvalidArgument if `args` does not allow at least one request and one slot.
  static Result<std::unique_ptr<StatePlan>> create(const PlanArgs& args, StepBuffer& step);
  static std::int64_t bytes_needed(const PlanLimits& limits);

  Status plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) override;
  bool plans_requests() const override { return true; }
  std::int64_t bytes() const override { return bytes_needed(limits_); }
  std::vector<std::string_view> kernels(BatchKind /*kind*/) const override { return {kernel_}; }

  StateMetadata metadata() const;
  // Returns the number of rows of each request of the newest planned forward. A launch may depend on it only if the
  // launch is not recorded.
  std::span<const std::int32_t> query_lens() const { return query_lens_; }

 private:
  StatePlan(const PlanArgs& args, StepBuffer& step);
  Status check(const ForwardBatch& batch) const;
  Status check_checkpoints(const ForwardBatch& batch) const;

  PlanLimits limits_;
  std::int64_t group_;
  std::int64_t num_slots_;
  std::int64_t max_drafts_;  // number of draft rows that a slot holds
  std::string_view kernel_;
  StepBuffer* step_;
  BatchLengths lengths_;
  // The offsets, in the step buffer, of StateMetadata's arrays with the same names. Each array is i32[max_requests].
  std::size_t slots_offset_;
  std::size_t drafts_offset_;
  std::size_t accepted_offset_;
  std::size_t checkpoint_rows_offset_;
  std::size_t checkpoint_slots_offset_;
  std::vector<std::int32_t> query_lens_;
};

// Makes StatePlans. The KernelDefs of operators with a state point to this planner. An operator's attribute "drafts"
// says how many draft rows a slot has room for. Without this attribute, no request may have drafts.
extern const OpPlanner kStatePlanner;

// Returns the context's plan for the node's operator and cache group. The plan outlives the bound operator. bind() of
// kernels calls it. Returns kFailedPrecondition if the context has no such plan.
Result<const StatePlan*> find_state_plan(const BindArgs& args);

// Returns how many requests lie completely within the first `rows` rows of the forward. A request with later rows is a
// defect of the runner. The count leaves out this request and all after it, so that kernels write nothing out of
// bounds. Precondition: the caller can read the device's memory.
std::int64_t count_requests(const StateMetadata& metadata, std::int64_t rows);

}  // namespace tessera
