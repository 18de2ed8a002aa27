#include "tessera/runner/model_runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/base/log.h"
#include "tessera/ops/collective.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/executables.h"
#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

// Outputs of the head and decode graphs, in the order of their chains.
constexpr std::size_t kHeadLogits = 0;
constexpr std::size_t kHeadSampled = 1;
constexpr std::size_t kDecodeHidden = 0;
constexpr std::size_t kDecodeLogits = 1;
constexpr std::size_t kDecodeSampled = 2;

// The attention layers of a cache group, each shape once.
std::vector<AttentionShape> attention_shapes(const ir::Graph& body, std::size_t group) {
  std::vector<AttentionShape> shapes;
  for (const ir::Node& node : body.nodes) {
    if (node.op != kAttention.name || node.attribute_or("group", std::int64_t{0}) != static_cast<std::int64_t>(group))
      continue;
    const ir::Type& cache = body.value(node.operands[1]).type;
    const std::int64_t kv_heads = *cache.shape[2].constant();
    const std::int64_t head_dim = *cache.shape[3].constant();
    const AttentionShape shape{.dtype = cache.dtype,
                               .heads = *body.value(node.operands[0]).type.shape[1].constant() / head_dim,
                               .kv_heads = kv_heads,
                               .head_dim = head_dim,
                               .window = node.attribute_or("window", std::int64_t{0}),
                               .softcap = node.attribute_or("softcap", 0.0)};
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

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
  TRY(runner->build_executables());
  return runner;
}

Status ModelRunner::allocate() {
  stream_ = TRY(device_.create_stream("main"));
  kv_ = std::make_unique<KvStorage>(TRY(KvStorage::create(graphs_.body, options_.num_pages, device_, *stream_)));

  hidden_size_ = *graphs_.body.value(graphs_.body.outputs[0]).type.shape.back().constant();
  vocab_size_ = vocabulary_of(graphs_);
  inputs_ = std::make_unique<InputBuffers>(TRY(InputBuffers::create(device_, input_limits(graphs_, options_))));
  edits_ = std::make_unique<EditBuffers>(TRY(EditBuffers::create(device_, vocab_size_)));

  context_.page_size = options_.page_size;
  context_.communicator = options_.communicator;
  context_.deterministic = options_.deterministic;
  const std::int64_t pages_per_request = pages_for(options_.context_length, options_.page_size);
  for (std::size_t g = 0; g < graphs_.body.cache_groups.size(); ++g) {
    attention_.push_back(TRY(AttentionBuffers::create(device_, {.max_requests = options_.max_requests,
                                                                .max_pages_per_request = pages_per_request,
                                                                .page_size = options_.page_size,
                                                                .num_pages = options_.num_pages,
                                                                .max_tokens = max_padded_tokens(options_),
                                                                .shapes = attention_shapes(graphs_.body, g),
                                                                .deterministic = options_.deterministic})));
    context_.attention.push_back(attention_.back().metadata());
  }

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
          .workspace = *workspace_};
}

Status ModelRunner::build_executables() {
  // Addresses only: how much of the range is used follows from the plans.
  const auto reserve = static_cast<std::size_t>(device_.properties().memory_bytes);
  arena_ = TRY(device_.create_arena({.reserve_bytes = reserve, .name = "arena"}));
  workspace_ = TRY(device_.create_arena({.reserve_bytes = reserve, .name = "workspace"}));
  externals_.insert(weights_.addresses().begin(), weights_.addresses().end());
  kv_->add_to(externals_);
  inputs_->add_to(externals_);
  edits_->add_to(externals_);
  externals_["hidden"] = arena_->base();  // the body's only output is placed first
  const std::int64_t choice_logits = TRY(choice_logits_offset(graphs_, options_));
  externals_[std::string(input_names::kChoiceLogits)] = arena_->base() + choice_logits;

  RunnerExecutables made =
      TRY(make_executables(graphs_, options_, environment(), decode_context_, options_.memory_plan));
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
                                                      .stream = *stream_});
  head_sizes_ = decode_ladder(max_head_rows(options_));
  table_.graphs_enabled = false;  // until capture()
  return ok_status();
}

Status ModelRunner::capture() {
  const GraphSwitches& on = options_.graphs;
  table_ = {.graphs_enabled = on.prefill || on.decode,
            .prefill_enabled = on.prefill,
            .decode_enabled = on.decode,
            .decode_padding = options_.decode_padding,
            .prefill_sizes = {},
            .decode_sizes = {}};
  if (!table_.graphs_enabled) return ok_status();
  TRY(warm_up().with_context("warming up"));
  const auto left = [&] {
    return device_.available_bytes() + static_cast<std::int64_t>(arena_->size() + workspace_->size());
  };
  const std::int64_t before = left();
  TRY(capture_graphs(on));
  measured_graph_bytes_ = std::max<std::int64_t>(before - left(), 0);
  return ok_status();
}

Status ModelRunner::capture_graphs(const GraphSwitches& on) {
  if (on.prefill && !options_.prefill_sizes.empty()) {
    log_info("capture", "Capture piecewise CUDA graph begin. {} sizes up to {} tokens", options_.prefill_sizes.size(),
             options_.prefill_sizes.back());
    TRY(prefill_->capture(options_.prefill_sizes, options_.show_progress));
    const CaptureReport& report = prefill_->report();
    log_info("capture", "Capture piecewise CUDA graph end. {} sizes, {:.2f} s, arena {:.3f} GB", report.captured.size(),
             report.seconds, static_cast<double>(arena_->size()) / 1e9);
    table_.prefill_sizes = report.captured;
  }
  if (on.decode && !options_.decode_sizes.empty()) {
    TRY(decode_->capture(options_.decode_sizes, options_.show_progress));
    table_.decode_sizes = decode_->report().captured;
    log_info("capture", "Captured decode graphs for {} batch sizes, {:.2f} s", table_.decode_sizes.size(),
             decode_->report().seconds);
  }
  return ok_status();
}

// Every kernel runs once, at the smallest size, on the reserved page (F1: dummy batch).
Status ModelRunner::warm_up() {
  ForwardBatch dummy;
  dummy.input_ids = {TokenId(0)};
  dummy.input_rows = {-1};
  dummy.positions = {0};
  dummy.query_lens = {1};
  dummy.kv_lens = {1};
  dummy.wanted_rows = {0};
  for (std::size_t g = 0; g < attention_.size(); ++g)
    dummy.groups.push_back({.slots = {SlotId(0)}, .page_tables = {{PageId(0)}}});
  const SampleRow row;
  const TokenId target(0);
  const LogitEdits edits{
      .starts = {0, 1}, .ids = {target}, .penalties = {1}, .offsets = {0}, .masked_rows = {}, .masks = {}};
  const ForwardInputs inputs{.batch = dummy,
                             .sampling = std::span(&row, 1),
                             .edits = &edits,
                             .logprob_targets = std::span(&target, 1),
                             .top_logprobs = 1,
                             .force_eager = true};
  TRY(run_body(inputs, {.runner = RunnerKind::kEager, .size = 1}));
  TRY(run_head(inputs, results_->begin(0, inputs)));
  return stream_->synchronize();
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
    count(inputs.batch, *decision);
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
                     .cache_groups = attention_.size(),
                     .vocab_size = vocab_size_,
                     .hidden_size = hidden_size_}));
  const ForwardBatch& batch = inputs.batch;
  bool in_order = batch.num_wanted_rows() == batch.num_tokens();
  for (std::size_t i = 0; in_order && i < batch.wanted_rows.size(); ++i)
    in_order = batch.wanted_rows[i] == static_cast<std::int32_t>(i);

  const Decision decision = dispatch({.tokens = batch.num_tokens(),
                                      .requests = batch.num_requests(),
                                      .one_row_each = in_order && batch.is_decode(),
                                      .force_eager = inputs.force_eager},
                                     table_);
  if (decision.runner == RunnerKind::kEager) {
    log_debug("dispatch", "fallback to eager: {}", reason_text(decision.reason));
  }
  StepResults::Slot& results = results_->begin(next_flight_, inputs);
  if (decision.runner == RunnerKind::kDecode) {
    TRY(run_decode(inputs, decision.size, results));
  } else {
    TRY(run_body(inputs, decision));
    TRY(run_head(inputs, results));
  }
  if (!results.sampled.empty()) TRY(inputs_->download_sampled(results.sampled, *stream_));
  TRY(stream_->record(*done_[static_cast<std::size_t>(next_flight_)]));
  return decision;
}

Status ModelRunner::stage(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_tokens, TokenId padding_id) {
  for (std::size_t g = 0; g < attention_.size(); ++g)
    TRY(plan_attention(batch, static_cast<int>(g), attention_[g], *stream_, kind, padded_tokens));
  return inputs_->stage_tokens(batch, padded_tokens, padding_id, *stream_);
}

Status ModelRunner::run_decode(const ForwardInputs& inputs, std::int64_t size, StepResults::Slot& results) {
  TRY(stage(inputs.batch, BatchKind::kDecode, size, TokenId(0)));
  TRY(inputs_->stage_rows(std::span(in_order_).first(static_cast<std::size_t>(size)), inputs.sampling, size, *stream_));
  TRY(decode_->replay(size));
  const Executable& decode = decode_->executable();
  const ir::Bucket bucket = decode_->bucket(size);
  if (!inputs.hidden_states.empty())
    TRY(read_hidden(TRY(decode.output(bucket, kDecodeHidden)).data, inputs.hidden_states));
  return take_rows(inputs,
                   {.first = 0,
                    .count = inputs.batch.num_wanted_rows(),
                    .logits = TRY(decode.output(bucket, kDecodeLogits)).data,
                    .sampled = TRY(decode.output(bucket, kDecodeSampled)).data},
                   results);
}

Status ModelRunner::run_body(const ForwardInputs& inputs, const Decision& decision) {
  TRY(stage(inputs.batch, BatchKind::kExtend, decision.size, TokenId(0)));
  if (decision.runner == RunnerKind::kPrefill) {
    TRY(prefill_->replay(decision.size));
  } else {
    TRY(prefill_->make_ready(decision.size));
    TRY(prefill_->run(decision.size));
  }
  // In the planned memory the output lies where the head reads it; isolated, it has a place of its own.
  const TensorView hidden = TRY(prefill_->executable().output(prefill_->bucket(decision.size), 0));
  if (!inputs.hidden_states.empty()) TRY(read_hidden(hidden.data, inputs.hidden_states));
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
    TRY(head_->run(size));
    const ir::Bucket bucket = head_->bucket(size);
    const HeadRows made{.first = static_cast<std::int64_t>(first),
                        .count = count,
                        .logits = TRY(head_->executable().output(bucket, kHeadLogits)).data,
                        .sampled = TRY(head_->executable().output(bucket, kHeadSampled)).data};
    TRY(take_rows(inputs, made, results));
  }
  return ok_status();
}

Status ModelRunner::take_rows(const ForwardInputs& inputs, const HeadRows& rows, StepResults::Slot& results) {
  if (!inputs.logits.empty()) {
    const std::span<float> part = inputs.logits.subspan(static_cast<std::size_t>(rows.first * vocab_size_),
                                                        static_cast<std::size_t>(rows.count * vocab_size_));
    TRY(stream_->download(part.data(), rows.logits, part.size_bytes()));
    TRY(stream_->synchronize());  // the next chunk overwrites the logits
  }
  if (inputs.needs_choice()) return chooser_->take(inputs, rows, results);
  const std::int64_t sampled = rows.num_sampled(static_cast<std::int64_t>(inputs.sampling.size()));
  return sampled == 0 ? ok_status() : inputs_->keep_sampled(rows.sampled, rows.first, sampled, *stream_);
}

Status ModelRunner::read_hidden(const std::byte* hidden, std::span<float> to) {
  const ir::DType dtype = graphs_.body.value(graphs_.body.outputs[0]).type.dtype;
  hidden_host_.resize(std::max(hidden_host_.size(), to.size() * ir::dtype_size(dtype)));
  TRY(stream_->download(hidden_host_.data(), hidden, to.size() * ir::dtype_size(dtype)));
  TRY(stream_->synchronize());
  return widen_floats(hidden_host_.data(), dtype, to);
}

std::int64_t ModelRunner::head_size(std::int64_t rows) const {
  return round_up(head_sizes_, rows).value_or(head_sizes_.back());
}

std::string ModelRunner::attention_kernels(BatchKind kind) const {
  std::set<std::string_view> names;
  for (std::size_t g = 0; g < attention_.size(); ++g) {
    const AttentionPlanner* planner = context_.attention[g].planner;
    for (const AttentionShape& shape : attention_[g].options().shapes)
      names.insert(planner == nullptr ? device_kind_name(device_.properties().kind) : planner->kernel(shape, kind));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void ModelRunner::count(const ForwardBatch& batch, const Decision& decision) {
  ++counters_.by_reason[static_cast<std::size_t>(decision.reason)];
  // Eager sizes are as many as there are lengths; they are counted together.
  const std::pair bucket(decision.runner, decision.runner == RunnerKind::kEager ? 0 : decision.size);
  ++counters_.by_bucket[bucket];
  counters_.padding_by_bucket[bucket] += decision.padding;
  counters_.tokens += batch.num_tokens();
  counters_.padded_tokens += decision.padding;
}

MemoryLedger ModelRunner::memory() const {
  const std::int64_t told = prefill_->executable().graph_stats().bytes + decode_->executable().graph_stats().bytes;
  return {.weights = weights_.total_bytes(),
          .kv_cache = kv_->bytes(),
          .arena = static_cast<std::int64_t>(arena_->size()),
          .workspace = static_cast<std::int64_t>(workspace_->size()),
          .static_inputs = inputs_->bytes() + edits_->bytes(),
          .graph_objects = told > 0 || device_.properties().kind == DeviceKind::kCpu ? told : measured_graph_bytes_};
}

}  // namespace tessera
