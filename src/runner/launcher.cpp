#include "tessera/runner/launcher.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/observe/operator_observer.h"

namespace tessera {
namespace {

// Returns the name of a part in the profile. All recordable parts (pieces) share one name. Each split operator between
// them has its own name.
std::string profiled_name(const GraphRunner& runner, std::int64_t size, std::size_t part) {
  const std::span<const CompiledPart> parts = runner.executable().parts(runner.bucket(size));
  if (parts.size() == 1) return std::string(runner.name());
  if (parts[part].recordable()) return fmt::format("{} pieces", runner.name());
  return parts[part].program->instructions.front().call.op;
}

}  // namespace

Status Launcher::stage(const StagedTokens& tokens, BatchKind kind, std::int64_t padded_tokens) {
  {
    const StepProfiler::Scope planning(profiler_, HostWork::kPlan);
    TRY(parts_.memory().plans.plan(tokens.batch, kind, padded_tokens, parts_.stream()));
  }
  const StepProfiler::Scope staging(profiler_, HostWork::kInputs);
  return parts_.memory().inputs.stage_tokens(tokens, padded_tokens);
}

Status Launcher::stage_dummy(const GraphRunner& runner, std::int64_t size) {
  const ir::Bucket bucket = runner.bucket(size);
  const bool decode = bucket[ir::Symbol::kRequests] > 0;
  const ForwardBatch batch =
      dummy_batch(size, decode, parts_.model.options, parts_.model.graphs.body.cache_groups, parts_.model.vocab_size);
  TRY(stage({.batch = batch}, runner.spec().batches, bucket[ir::Symbol::kTokens]));
  if (const std::int64_t rows = bucket[ir::Symbol::kRows]; rows > 0)
    TRY(parts_.memory().inputs.stage_rows({}, {}, rows));
  return upload();
}

Status Launcher::stage_pages(std::int64_t size) {
  const std::optional<ForwardBatch> batch =
      page_batch(size, parts_.model.options, parts_.model.graphs.body.cache_groups);
  if (!batch) return internal_error(fmt::format("{} tokens cannot share a page", size));
  TRY(stage({.batch = *batch}, BatchKind::kExtend, size));
  return upload();
}

Status Launcher::upload() {
  const StepProfiler::Scope staging(profiler_, HostWork::kInputs);
  return parts_.memory().step_buffer->upload(parts_.stream());
}

Status Launcher::enqueue(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how) {
  if (observer_ != nullptr) return run_observed(parts_, runner, size, real_rows, *observer_);
  const bool full = how == Execution::kFullGraph;
  if (profiler_ == nullptr) {
    if (how == Execution::kOperators) return runner.run(size);
    return runner.replay(size, full ? GraphForm::kFull : GraphForm::kPieces);
  }
  const StepProfiler::Scope launching(profiler_, HostWork::kLaunch);
  TRY(profiler_->begin_device());
  if (full) {
    TRY(runner.replay(size, GraphForm::kFull));
    return profiler_->mark(fmt::format("{} as one graph", runner.name()));
  }
  return runner.executable().run_in_parts(runner.bucket(size), how == Execution::kGraphs, [&](std::size_t part) {
    return profiler_->mark(profiled_name(runner, size, part));
  });
}

Status Launcher::launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, Execution how,
                        bool* replay_failed) {
  TRY(upload());
  if (parts_.debug() != nullptr) TRY(parts_.debug()->before(runner, size));
  Status launched = enqueue(runner, size, real_rows, how);
  if (replay_failed != nullptr) *replay_failed = how != Execution::kOperators && !launched.ok();
  TRY(std::move(launched));
  return parts_.debug() == nullptr ? ok_status() : parts_.debug()->after(runner, size, real_rows);
}

Status Launcher::check_fresh(const OutputView& view) const {
  return parts_.debug() == nullptr ? ok_status() : parts_.debug()->history().check_fresh(view);
}

}  // namespace tessera
