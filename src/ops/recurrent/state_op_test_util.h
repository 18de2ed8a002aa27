// Helpers for tests of operators with a state for each sequence: batches, and a plan of their slots on the device under
// test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/contract/state_plan.h"
#include "tessera/ops/device_registry.h"

namespace tessera::testing {

inline constexpr std::int64_t kNumSlots = 12;

// One request's part of a forward.
struct StateRequest {
  std::int32_t rows = 1;
  std::int32_t before = 0;  // rows of the request in earlier forwards
  std::int32_t slot = 1;
  std::int32_t drafts = 0;    // this many rows at the end do not change the state
  std::int32_t accepted = 0;  // this many rows of `before` lie in the slot as accepted drafts
  // After this many rows the state is also stored in slot checkpoint_slot. 0: never.
  std::int32_t checkpoint = 0;
  std::int32_t checkpoint_slot = 0;
};

inline ForwardBatch state_batch(const std::vector<StateRequest>& requests) {
  ForwardBatch batch;
  std::vector<std::vector<PageId>> slots;
  for (const StateRequest& request : requests) {
    batch.query_lens.push_back(request.rows);
    batch.kv_lens.push_back(request.before + request.rows);
    batch.draft_lens.push_back(request.drafts);
    batch.accepted_drafts.push_back(request.accepted);
    if (request.checkpoint > 0)
      batch.checkpoints.push_back({.group = 0,
                                   .request = static_cast<std::int32_t>(batch.query_lens.size()) - 1,
                                   .rows = request.checkpoint,
                                   .slot = PageId(request.checkpoint_slot)});
    slots.push_back({PageId(request.slot)});
  }
  batch.groups.emplace_back().own(std::move(slots));
  return batch;
}

inline std::int64_t rows_of(const std::vector<StateRequest>& requests) {
  std::int64_t rows = 0;
  for (const StateRequest& request : requests) rows += request.rows;
  return rows;
}

// The plan of one operator for cache group 0, and a forward context that has this plan.
class StateBench {
 public:
  // `held_drafts` is the operator's attribute "drafts".
  explicit StateBench(const std::string& op, bool deterministic = false, std::int64_t held_drafts = 0) {
    context.limits = {.max_requests = 16, .max_tokens = 1024, .deterministic = deterministic};
    const ir::Node node{.op = op, .attributes = {{"drafts", held_drafts}}};
    const PlannedNode planned{.node = &node, .operands = {}};
    Result<std::unique_ptr<OpPlan>> made = kStatePlanner.make(
        test_device(), {.nodes = {&planned, 1}, .kernel = "test", .num_pages = kNumSlots, .limits = context.limits},
        step_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    plan_ = *std::move(made);
    context.plans.push_back({.op = op, .group = 0, .plan = plan_.get()});
    Result<std::unique_ptr<Stream>> stream = test_device().create_stream("plan");
    EXPECT_TRUE(stream.ok()) << stream.status().message();
    stream_ = *std::move(stream);
    EXPECT_TRUE(step_.allocate(test_device(), *stream_).ok());
  }
  Status plan(const ForwardBatch& batch) {
    TRY(plan_->plan(batch, BatchKind::kExtend, 0, *stream_));
    TRY(step_.upload(*stream_));
    return stream_->synchronize();  // operators run on a stream of their own, which must see the upload
  }
  void plan_requests(const std::vector<StateRequest>& requests) {
    const Status status = plan(state_batch(requests));
    EXPECT_TRUE(status.ok()) << status.message();
  }

  ForwardContext context;

 private:
  StepBuffer step_;
  std::unique_ptr<OpPlan> plan_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tessera::testing
