#include "tessera/runner/model_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/ops/collective.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/executables.h"
#include "tessera/runner/graph_failure.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/prediction.h"

namespace tessera {
namespace {

// Outputs of the head and decode graphs, in the order of their chains.
constexpr std::size_t kHeadLogits = 0;
constexpr std::size_t kHeadSampled = 1;
constexpr std::size_t kDecodeHidden = 0;
constexpr std::size_t kDecodeLogits = 1;
constexpr std::size_t kDecodeSampled = 2;

}  // namespace

ModelRunner::ModelRunner(ModelGraphs graphs, Weights weights, Device& device, RunnerOptions options)
    : device_(device), options_(std::move(options)), graphs_(std::move(graphs)), weights_(std::move(weights)) {}

ModelRunner::~ModelRunner() {
  // What was enqueued still uses the memory that goes now; what fails there matters to nobody any more.
  if (stream_ != nullptr) static_cast<void>(stream_->synchronize());
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(ModelGraphs graphs, Weights weights, Device& device,
                                                         RunnerOptions options) {
  std::unique_ptr<ModelRunner> runner(
      new ModelRunner(std::move(graphs), std::move(weights), device, std::move(options)));
  TRY(runner->allocate());
  TRY(runner->build_executables().with_context(kCompileContext));
  return runner;
}

Status ModelRunner::allocate() {
  stream_ = TRY(device_.create_stream("main"));
  kv_ = std::make_unique<KvStorage>(TRY(KvStorage::create(graphs_.body, options_.num_pages, device_, *stream_)));

  hidden_size_ = *graphs_.body.value(graphs_.body.outputs[0]).type.shape.back().constant();
  vocab_size_ = vocabulary_of(graphs_);
  inputs_ = std::make_unique<InputBuffers>(TRY(InputBuffers::create(device_, input_limits(graphs_, options_))));
  edits_ = std::make_unique<EditBuffers>(TRY(EditBuffers::create(device_, vocab_size_)));

  context_.limits = plan_limits(options_);
  context_.communicator = options_.communicator;
  const std::array<const ir::Graph*, 1> planned{&graphs_.body};
  plans_ = std::make_unique<OpPlans>(TRY(OpPlans::create(device_, {.graphs = planned,
                                                                   .kernels = *TRY(kernels_of(options_, device_)),
                                                                   .limits = context_.limits,
                                                                   .num_pages = options_.num_pages})));
  plans_->add_to(context_);

  decode_context_ = context_;
  decode_context_.batch_kind = BatchKind::kDecode;

  in_order_.resize(static_cast<std::size_t>(max_head_rows(options_)));
  std::iota(in_order_.begin(), in_order_.end(), 0);
  results_ = std::make_unique<StepResults>(
      TRY(StepResults::create(device_, kMaxInFlight, options_.max_requests, options_.max_tokens)));
  for (std::unique_ptr<Event>& done : done_) done = TRY(device_.create_event());
  hidden_bytes_ = TRY(hidden_bytes(graphs_, options_));
  return ok_status();
}

ExecutionEnvironment ModelRunner::environment() {
  return {.device = device_,
          .stream = *stream_,
          .context = context_,
          .externals = externals_,
          .arena = *arena_,
          .workspace = *workspace_,
          .history = debug_ == nullptr ? nullptr : &debug_->history()};
}

Status ModelRunner::build_executables() {
  // Addresses only: how much of the range is used follows from the plans.
  const auto reserve = static_cast<std::size_t>(device_.properties().memory_bytes);
  arena_ = TRY(device_.create_arena({.reserve_bytes = reserve, .name = "arena"}));
  workspace_ = TRY(device_.create_arena({.reserve_bytes = reserve, .name = "workspace"}));
  if (options_.debug)
    debug_ = std::make_unique<DebugMode>(*stream_, *arena_,
                                         options_.communicator == nullptr ? 1 : options_.communicator->ranks());
  for (const auto& [name, address] : weights_.addresses()) externals_.add(name, address);
  kv_->add_to(externals_);
  inputs_->add_to(externals_);
  edits_->add_to(externals_);
  externals_.add("hidden", arena_->base());  // the body's only output is placed first
  const std::int64_t choice_logits = TRY(choice_logits_offset(graphs_, options_));
  externals_.add(std::string(input_names::kChoiceLogits), arena_->base() + choice_logits);

  RunnerExecutables made =
      TRY(make_executables(graphs_, options_, environment(), decode_context_, options_.memory_plan));
  const Prediction predicted = TRY(predict_memory(made, graphs_, options_, device_, PredictionDetail::kTotals));
  predicted_ = predicted.memory;
  prefill_ = std::make_unique<GraphRunner>("prefill", std::move(made.prefill),
                                           [this](std::int64_t size) { return prefill_bucket(options_, size); });
  head_ = std::make_unique<GraphRunner>("head", std::move(made.head),
                                        [this](std::int64_t size) { return head_bucket(options_, size); });
  decode_ = std::make_unique<GraphRunner>("decode", std::move(made.decode),
                                          [this](std::int64_t size) { return decode_bucket(options_, size); });
  chooser_ = std::make_unique<Chooser>(Chooser::Parts{.choose = std::move(made.choose),
                                                      .logprobs = std::move(made.logprobs),
                                                      .edits = *edits_,
                                                      .inputs = *inputs_,
                                                      .arena = *arena_,
                                                      .logits_offset = choice_logits,
                                                      .vocab_size = vocab_size_,
                                                      .stream = *stream_,
                                                      .debug = debug_.get()});
  head_sizes_ = decode_ladder(max_head_rows(options_));
  table_.graphs_enabled = false;  // until capture()
  return ok_status();
}

Result<ForwardOutputs> ModelRunner::forward(const ForwardInputs& inputs) {
  ForwardOutputs outputs;
  outputs.decision = TRY(submit(inputs));
  outputs.step = TRY(collect());
  return outputs;
}

Result<Decision> ModelRunner::submit(const ForwardInputs& inputs) {
  if (in_flight_ == kMaxInFlight)
    return internal_error(fmt::format("{} forwards are in flight, and none was collected", in_flight_));
  Result<Decision> decision = enqueue(inputs);
  if (decision.ok()) {
    next_flight_ = (next_flight_ + 1) % kMaxInFlight;
    ++in_flight_;
    counters_.add(*decision, inputs.batch.num_tokens(), inputs.batch.is_decode());
  } else if (options_.communicator != nullptr) {
    options_.communicator->abort(decision.status().message());  // the other ranks must not wait for one that failed
  }
  return decision;
}

Result<StepOutputs> ModelRunner::collect() {
  if (in_flight_ == 0) return internal_error("no forward is in flight to be collected");
  const int oldest = (next_flight_ + kMaxInFlight - in_flight_) % kMaxInFlight;
  --in_flight_;
  TRY(done_[static_cast<std::size_t>(oldest)]->synchronize());
  return results_->finish(oldest);
}

Result<Decision> ModelRunner::enqueue(const ForwardInputs& inputs) {
  TRY(check(inputs, {.max_tokens = options_.max_tokens,
                     .max_requests = options_.max_requests,
                     .cache_groups = graphs_.body.cache_groups.size(),
                     .vocab_size = vocab_size_,
                     .hidden_size = hidden_size_}));
  const ForwardBatch& batch = inputs.batch;
  Decision decision = TRY(decide(shape_of(batch, inputs.force_eager)));
  StepResults::Slot& results = results_->begin(next_flight_, inputs);
  launch_failed_ = false;
  Status ran = run(inputs, decision, results);
  // One of several ranks cannot go back alone: the others have met it in the graph's collectives already.
  const bool alone = options_.communicator == nullptr || options_.communicator->ranks() == 1;
  if (!ran.ok() && launch_failed_ && alone && ran.code() != StatusCode::kDeviceLost) {
    TRY(give_up_failed_graph(decision, ran));
    decision = {RunnerKind::kEager, batch.num_tokens(), 0, Reason::kReplayFailed};
    ran = run(inputs, decision, results);
  } else if (ran.ok() && !failed_replays_.empty()) {
    failed_replays_.erase({decision.runner, decision.size});
  }
  TRY(ran);
  tell(batch, decision);
  if (!results.sampled.empty()) TRY(inputs_->download_sampled(results.sampled, *stream_));
  TRY(stream_->record(*done_[static_cast<std::size_t>(next_flight_)]));
  return decision;
}

// The first forward without graph is told for each reason, unless it was asked for; all are where details are wanted.
void ModelRunner::tell(const ForwardBatch& batch, const Decision& decision) {
  if (decision.runner != RunnerKind::kEager) {
    log_debug("dispatch", "{} tokens of {} requests: {} {}, padding {}: {}", batch.num_tokens(), batch.num_requests(),
              runner_kind_name(decision.runner), decision.size, decision.padding, reason_text(decision.reason));
    return;
  }
  const bool asked_for = decision.reason == Reason::kEagerRequested;
  const bool first = !std::exchange(told_[static_cast<std::size_t>(decision.reason)], true);
  const LogLevel level = first && !asked_for ? LogLevel::kInfo : LogLevel::kDebug;
  if (!log_enabled("dispatch", level)) return;
  log_line("dispatch", level,
           fmt::format("{} tokens of {} requests: fallback to eager: {}", batch.num_tokens(), batch.num_requests(),
                       reason_text(decision.reason)));
}

// Where graphs are captured when they are first wanted, this is when; a size that cannot be is not chosen again.
Result<Decision> ModelRunner::decide(const BatchShape& batch) {
  while (true) {
    const Decision decision = dispatch(batch, table_);
    if (decision.runner == RunnerKind::kEager) return decision;
    GraphRunner& runner = runner_of(decision.runner);
    if (runner.captured(decision.size)) return decision;
    const Status captured = runner.capture_one(decision.size);
    if (captured.code() == StatusCode::kDeviceLost) return captured;
    refresh_table();
  }
}

Status ModelRunner::run(const ForwardInputs& inputs, const Decision& decision, StepResults::Slot& results) {
  if (decision.runner == RunnerKind::kDecode) return run_decode(inputs, decision.size, results);
  TRY(run_body(inputs, decision));
  return run_head(inputs, results);
}

// A forward whose graph was not launched has kept nothing: its cache slots are written again by the eager run, and the
// ids it reads are still there.
Status ModelRunner::give_up_failed_graph(const Decision& decision, const Status& why) {
  constexpr int kMostFailures = 3;  // in a row; one may have been want of memory for a moment
  log_warn("dispatch", "a forward of {} rows is run again without its graph: {}", decision.size, why.to_string());
  const int failures = ++failed_replays_[{decision.runner, decision.size}];
  if (failures < kMostFailures) return ok_status();
  TRY(stream_->synchronize());  // launches before may still use it
  failed_replays_.erase({decision.runner, decision.size});
  runner_of(decision.runner).drop(decision.size, why);
  refresh_table();
  return ok_status();
}

Status ModelRunner::launch(GraphRunner& runner, std::int64_t size, std::int64_t real_rows, bool replay) {
  if (debug_ != nullptr) TRY(debug_->before(runner, size));
  if (replay) {
    const Status launched = runner.replay(size);
    launch_failed_ = !launched.ok();
    TRY(launched);
  } else {
    TRY(runner.run(size));
  }
  return debug_ == nullptr ? ok_status() : debug_->after(runner, size, real_rows);
}

Status ModelRunner::check_fresh(const OutputView& view) const {
  return debug_ == nullptr ? ok_status() : debug_->history().check_fresh(view);
}

Status ModelRunner::stage(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_tokens, TokenId padding_id) {
  TRY(plans_->plan(batch, kind, padded_tokens, *stream_));
  return inputs_->stage_tokens(batch, padded_tokens, padding_id, *stream_);
}

Status ModelRunner::run_decode(const ForwardInputs& inputs, std::int64_t size, StepResults::Slot& results) {
  TRY(stage(inputs.batch, BatchKind::kDecode, size, TokenId(0)));
  TRY(inputs_->stage_rows(std::span(in_order_).first(static_cast<std::size_t>(size)), inputs.sampling, size, *stream_));
  TRY(launch(*decode_, size, inputs.batch.num_tokens(), inputs.replay_graphs));
  const Executable& decode = decode_->executable();
  const ir::Bucket bucket = decode_->bucket(size);
  if (!inputs.hidden_states.empty()) TRY(read_hidden(TRY(decode.output(bucket, kDecodeHidden)), inputs.hidden_states));
  return take_rows(inputs,
                   {.first = 0,
                    .count = inputs.batch.num_wanted_rows(),
                    .logits = TRY(decode.output(bucket, kDecodeLogits)),
                    .sampled = TRY(decode.output(bucket, kDecodeSampled))},
                   results);
}

Status ModelRunner::run_body(const ForwardInputs& inputs, const Decision& decision) {
  TRY(stage(inputs.batch, BatchKind::kExtend, decision.size, TokenId(0)));
  if (decision.runner == RunnerKind::kPrefill) {
    TRY(launch(*prefill_, decision.size, inputs.batch.num_tokens(), inputs.replay_graphs));
  } else {
    TRY(prefill_->make_ready(decision.size));
    TRY(launch(*prefill_, decision.size, inputs.batch.num_tokens(), false));
  }
  // In the planned memory the output lies where the head reads it; isolated, it has a place of its own.
  const OutputView hidden = TRY(prefill_->executable().output(prefill_->bucket(decision.size), 0));
  if (!inputs.hidden_states.empty()) TRY(read_hidden(hidden, inputs.hidden_states));
  if (hidden.data == arena_->base()) return ok_status();
  TRY(arena_->grow(static_cast<std::size_t>(hidden_bytes_)));
  return stream_->copy(arena_->base(), hidden.data, static_cast<std::size_t>(hidden.bytes()));
}

Status ModelRunner::run_head(const ForwardInputs& inputs, StepResults::Slot& results) {
  const std::span<const std::int32_t> wanted = inputs.batch.wanted_rows;
  const auto chunk = static_cast<std::size_t>(head_sizes_.back());
  for (std::size_t first = 0; first < wanted.size(); first += chunk) {
    const std::span<const std::int32_t> rows = wanted.subspan(first, std::min(chunk, wanted.size() - first));
    const std::size_t begin = std::min(first, inputs.sampling.size());
    const std::span<const SampleRow> sampling =
        inputs.sampling.subspan(begin, std::min(rows.size(), inputs.sampling.size() - begin));
    const auto count = static_cast<std::int64_t>(rows.size());
    const std::int64_t size = head_size(count);
    TRY(inputs_->stage_rows(rows, sampling, size, *stream_));
    TRY(head_->make_ready(size));
    TRY(launch(*head_, size, count, false));
    const ir::Bucket bucket = head_->bucket(size);
    const HeadRows made{.first = static_cast<std::int64_t>(first),
                        .count = count,
                        .logits = TRY(head_->executable().output(bucket, kHeadLogits)),
                        .sampled = TRY(head_->executable().output(bucket, kHeadSampled))};
    TRY(take_rows(inputs, made, results));
  }
  return ok_status();
}

Status ModelRunner::take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  if (!inputs.logits.empty()) {
    const std::span<float> part = inputs.logits.subspan(static_cast<std::size_t>(rows.first * vocab_size_),
                                                        static_cast<std::size_t>(rows.count * vocab_size_));
    TRY(check_fresh(rows.logits));
    TRY(stream_->download(part.data(), rows.logits.data, part.size_bytes()));
    TRY(stream_->synchronize());  // the next chunk overwrites the logits
  }
  if (inputs.needs_choice()) return chooser_->take(inputs, rows, results);
  const std::int64_t sampled = rows.num_sampled(static_cast<std::int64_t>(inputs.sampling.size()));
  TRY(check_fresh(rows.sampled));
  return sampled == 0 ? ok_status() : inputs_->keep_sampled(rows.sampled.data, rows.first, sampled, *stream_);
}

Status ModelRunner::read_hidden(const OutputView& hidden, std::span<float> to) {
  TRY(check_fresh(hidden));
  const ir::DType dtype = graphs_.body.value(graphs_.body.outputs[0]).type.dtype;
  hidden_host_.resize(std::max(hidden_host_.size(), to.size() * ir::dtype_size(dtype)));
  TRY(stream_->download(hidden_host_.data(), hidden.data, to.size() * ir::dtype_size(dtype)));
  TRY(stream_->synchronize());
  return widen_floats(hidden_host_.data(), dtype, to);
}

std::int64_t ModelRunner::head_size(std::int64_t rows) const {
  return round_up(head_sizes_, rows).value_or(head_sizes_.back());
}

std::string ModelRunner::planned_kernels(BatchKind kind) const { return plans_->kernels(kind); }

MemoryLedger ModelRunner::memory() const {
  MemoryLedger ledger{.weights = weights_.total_bytes(),
                      .kv_cache = kv_->bytes(),
                      .arena = static_cast<std::int64_t>(arena_->size()),
                      .workspace = static_cast<std::int64_t>(workspace_->size()),
                      .static_inputs = inputs_->bytes() + edits_->bytes(),
                      .plans = plans_->bytes(),
                      .step_results = results_->bytes(),
                      .available = available_,
                      .predicted = predicted_};
  for (const GraphRunner* runner : {prefill_.get(), decode_.get()}) {
    ledger.runners.push_back(runner_memory(*runner, device_.properties(), graph_bytes_of_estimate_));
    ledger.graph_objects += ledger.runners.back().graph_bytes();
  }
  return ledger;
}

}  // namespace tessera
