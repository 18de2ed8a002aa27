#include "tessera/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <random>

#include "tessera/base/log.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/backend.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// splitmix64 (Steele et al., 2014): a stream of seeds from one seed.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Weights on their way while the graphs that will read them are built and captured. On a CPU both would fight for the
// same cores, and the weights come first.
class WeightLoad {
 public:
  WeightLoad(std::vector<WeightSpec> specs, const Weights& weights, WeightSource source, Device& device,
             bool show_progress)
      : specs_(std::move(specs)),
        memory_(weights.memory()),
        addresses_(weights.addresses()),
        source_(std::move(source)),
        device_(device),
        show_progress_(show_progress) {}

  Status start() {
    const bool beside = device_.properties().kind != DeviceKind::kCpu;
    seconds_ = std::async(beside ? std::launch::async : std::launch::deferred, [this] { return run(); });
    return beside ? ok_status() : seconds_.get().status();
  }
  // Seconds that it took.
  Result<double> wait() { return seconds_.get(); }

 private:
  Result<double> run() {
    // Some cores are left to the thread that captures: a team that waits for a member whose core is taken loses
    // whole time slices.
    if (device_.properties().kind != DeviceKind::kCpu) set_worker_threads(std::max(1, worker_threads() * 3 / 4));
    const Clock::time_point start = Clock::now();
    TRY(fill_weights(specs_, addresses_, source_, device_, show_progress_));
    return seconds_since(start);
  }

  std::vector<WeightSpec> specs_;
  std::shared_ptr<const Allocation> memory_;  // a runner that cannot be made frees its own share
  Weights::Addresses addresses_;
  WeightSource source_;
  Device& device_;
  bool show_progress_;
  std::shared_future<Result<double>> seconds_;  // last: its destructor waits for the thread
};

}  // namespace

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) {
  std::unique_ptr<Engine> engine(new Engine());
  TRY(engine->load(options));
  return engine;
}

Status Engine::load(const EngineOptions& options) {
  const Clock::time_point start = Clock::now();
  device_ = TRY(open_device(options.device));
  EnginePlan plan = TRY(plan_engine(options, device_->properties()));
  config_ = plan.config;
  notes_ = plan.notes;
  for (const std::string& note : notes_) log_warn("engine", "{}", note);
  TRY(load_texts(options));

  seed_state_ = options.random_seed != 0 ? options.random_seed : std::random_device{}();
  // One bar at a time: where both overlap, loading is what takes long.
  if (device_->properties().kind != DeviceKind::kCpu) plan.runner.show_progress = false;
  Weights weights = TRY(Weights::allocate(plan.graphs.weights, *device_));
  WeightLoad load(plan.graphs.weights, weights, TRY(weight_source(options)), *device_, options.show_progress);
  TRY(load.start());
  const SchedulerOptions scheduling{
      .chunk = plan.runner.max_tokens,
      .max_running = plan.runner.max_requests,
      .num_cache_groups = static_cast<std::int64_t>(plan.graphs.body.cache_groups.size())};
  // On a CPU a forward is over when it is enqueued: nothing would overlap, and ends would be seen a step late.
  overlap_ = options.overlap_schedule.value_or(device_->properties().kind != DeviceKind::kCpu);
  const PagePool pages(plan.runner.num_pages, plan.runner.page_size);
  scheduler_ = std::make_unique<Scheduler>(scheduling, pages);
  runner_ = TRY(ModelRunner::create(std::move(plan.graphs), std::move(weights), *device_, std::move(plan.runner)));
  prepare_seconds_ = seconds_since(start);

  const Clock::time_point capture_start = Clock::now();
  TRY(runner_->capture());
  capture_seconds_ = seconds_since(capture_start);
  load_seconds_ = TRY(load.wait());
  return ok_status();
}

Status Engine::load_texts(const EngineOptions& options) {
  const std::string folder = model_folder(options.model_path);
  generation_config_ = TRY(GenerationConfig::read(folder));
  end_ids_ = generation_config_.eos_token_ids.empty() ? config_.eos_token_ids : generation_config_.eos_token_ids;

  namespace fs = std::filesystem;
  const bool given = !options.tokenizer_path.empty();
  fs::path file = given ? fs::path(options.tokenizer_path) : fs::path(folder);
  std::error_code unreadable;
  if (fs::is_directory(file, unreadable)) file /= "tokenizer.json";
  if (!given && !fs::exists(file, unreadable)) return ok_status();
  tokenizer_ = TRY(Tokenizer::load(file.string()));
  tokenizer_config_ = TRY(TokenizerConfig::load(file.parent_path().string()));
  return ok_status();
}

std::int64_t Engine::draw_seed() { return static_cast<std::int64_t>(next_random(seed_state_) >> 1); }

Result<RequestId> Engine::submit(Request request) {
  TRY(check_sampling(request.sampling));
  const std::int64_t context = runner_->options().context_length;
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) return invalid_argument("the prompt is empty; at least one token is needed");
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    const std::int32_t id = request.prompt[i].value();
    if (id < 0 || id >= config_.vocab_size) {
      return invalid_argument(
          fmt::format("prompt token {} has id {}; accepted are 0 to {}", i, id, config_.vocab_size - 1));
    }
  }
  if (request.score) request.max_new_tokens = 0;
  if (request.max_new_tokens < (request.score ? 0 : 1)) {
    return invalid_argument(fmt::format("max_new_tokens is {}; accepted is 1 or more", request.max_new_tokens));
  }
  if (length > context || (length == context && !request.score)) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens, which is too long for a context of {}", length, context));
  }
  request.max_new_tokens = std::min(request.max_new_tokens, context - length);
  const PagePool& pages = scheduler_->pages();
  const std::int64_t needed = pages.pages_for(length + std::max<std::int64_t>(request.max_new_tokens - 1, 0));
  if (needed > pages.num_usable()) {
    return resource_exhausted(fmt::format(
        "the request needs {} pages of the KV cache, which has {}; ask for fewer tokens or raise --mem-fraction-static",
        needed, pages.num_usable()));
  }

  auto sequence = std::make_unique<Sequence>();
  sequence->id = RequestId(next_id_++);
  sequence->seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  sequence->arrived = Clock::now();
  const RequestId id = sequence->id;
  scheduler_->add(std::move(sequence));
  return id;
}

bool Engine::idle() const { return scheduler_->idle() && runner_->in_flight() == 0; }

bool Engine::ends_text(const Request& request, TokenId token) const {
  return !request.ignore_eos && std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end();
}

void Engine::finish(RequestId id, FinishReason reason) {
  const std::unique_ptr<Sequence> sequence = scheduler_->remove(id);
  if (sequence == nullptr) return;
  for (ScheduledBatch& batch : batches_) {
    for (ScheduledBatch::Entry& entry : batch.entries)
      if (entry.sequence == sequence.get()) entry.sequence = nullptr;
  }
  Completion done{
      .output_ids = {sequence->tokens.begin() + sequence->prompt_tokens(), sequence->tokens.end() - sequence->pending},
      .finish = reason,
      .prompt_tokens = sequence->prompt_tokens(),
      .seed = sequence->seed,
      .logits = std::move(sequence->logits),
      .time_to_first_token_ms = sequence->first_token_ms,
      .total_ms = 1e3 * seconds_since(sequence->arrived)};
  finished_.emplace_back(id, std::move(done));
}

Result<std::span<const RequestEvent>> Engine::step() {
  events_.clear();
  // What scored sequences wait for is read before anything else is scheduled.
  const bool overlap = overlap_ && !scheduler_->has_scored();
  if (!overlap && runner_->in_flight() > 0) TRY(collect_oldest());
  const int before = runner_->in_flight();
  TRY(submit_next());
  const bool runs_ahead = overlap && runner_->in_flight() > before;
  if (runner_->in_flight() > (runs_ahead ? 1 : 0)) TRY(collect_oldest());
  return std::span<const RequestEvent>(events_);
}

// Schedules into the batch behind those in flight and enqueues it. Its failure is its requests' own.
Status Engine::submit_next() {
  ScheduledBatch& next = batches_[static_cast<std::size_t>(runner_->in_flight())];
  scheduler_->next(next);
  if (next.entries.empty()) return ok_status();
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  logits_.resize(next.wants_logits ? next.batch.wanted_rows.size() * vocab : 0);
  // A forward of scored tokens alone may want more rows than can be sampled, and samples none.
  const bool samples = std::any_of(next.entries.begin(), next.entries.end(),
                                   [](const auto& e) { return !e.sequence->request.score && e.num_rows > 0; });
  const Result<Decision> decision =
      runner_->submit({.batch = next.batch,
                       .sampling = samples ? std::span<const SampleRow>(next.sampling) : std::span<const SampleRow>(),
                       .logits = logits_});
  if (decision.ok()) {
    scheduler_->mark_submitted(next);
    return ok_status();
  }
  if (decision.status().code() == StatusCode::kDeviceLost) return decision.status();
  fail(next, decision.status());
  // What it enqueued before it failed may have overwritten the ids that the step before it left on the device.
  if (runner_->in_flight() > 0) TRY(collect_oldest());
  scheduler_->forget_rows();
  return ok_status();
}

Status Engine::collect_oldest() {
  const Result<std::span<const TokenId>> sampled = runner_->collect();
  if (sampled.ok()) {
    for (const ScheduledBatch::Entry& entry : batches_.front().entries)
      if (entry.sequence != nullptr) collect_entry(entry, *sampled);
  } else {
    if (sampled.status().code() == StatusCode::kDeviceLost) return sampled.status();
    fail(batches_.front(), sampled.status());
  }
  std::rotate(batches_.begin(), batches_.begin() + 1, batches_.end());
  batches_.back().entries.clear();
  return ok_status();
}

void Engine::fail(const ScheduledBatch& scheduled, const Status& error) {
  for (const ScheduledBatch::Entry& entry : scheduled.entries) {
    if (entry.sequence == nullptr) continue;
    const RequestId id = entry.sequence->id;
    events_.push_back({.request = id, .token = std::nullopt, .finish = FinishReason::kError, .error = error});
    finish(id, FinishReason::kError);
  }
}

void Engine::collect_entry(const ScheduledBatch::Entry& entry, std::span<const TokenId> sampled) {
  Sequence& sequence = *entry.sequence;
  RequestEvent event{.request = sequence.id, .token = std::nullopt, .finish = FinishReason::kNone, .error = {}};
  if (sequence.request.score) {
    const auto vocab = static_cast<std::size_t>(config_.vocab_size);
    const auto first = logits_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(entry.first_row) * vocab);
    sequence.logits.insert(sequence.logits.end(), first,
                           first + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(entry.num_rows) * vocab));
    if (sequence.computed == sequence.prompt_tokens()) event.finish = FinishReason::kLength;
  } else if (entry.num_rows > 0) {
    const TokenId token = sampled[static_cast<std::size_t>(entry.first_row)];
    if (entry.next_token == sequence.prompt_tokens()) sequence.first_token_ms = 1e3 * seconds_since(sequence.arrived);
    if (ends_text(sequence.request, token)) {
      event.finish = FinishReason::kStop;  // the token, and those a later forward samples, stay pending for ever
    } else {
      Scheduler::settle(entry, token);
      event.token = token;
      if (entry.next_token + 1 - sequence.prompt_tokens() >= sequence.request.max_new_tokens)
        event.finish = FinishReason::kLength;
    }
  }
  if (!event.token && event.finish == FinishReason::kNone) return;
  const RequestId id = event.request;
  const FinishReason reason = event.finish;
  events_.push_back(std::move(event));
  if (reason != FinishReason::kNone) finish(id, reason);
}

std::optional<Completion> Engine::take(RequestId id) {
  const auto it = std::find_if(finished_.begin(), finished_.end(), [&](const auto& f) { return f.first == id; });
  if (it == finished_.end()) return std::nullopt;
  Completion done = std::move(it->second);
  finished_.erase(it);
  return done;
}

void Engine::cancel(RequestId id) { finish(id, FinishReason::kCancelled); }

Result<std::vector<Completion>> Engine::run(std::span<const Request> requests,
                                            const std::function<void(std::size_t, const RequestEvent&)>& on_event) {
  std::vector<RequestId> ids;
  ids.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Result<RequestId> id = submit(requests[i]);
    if (!id.ok()) {
      for (const RequestId queued : ids) {
        cancel(queued);
        take(queued);
      }
      return requests.size() > 1 ? id.status().with_context(fmt::format("request {}", i)) : id.status();
    }
    ids.push_back(*id);
  }
  Status failure;
  while (!idle()) {
    for (const RequestEvent& event : TRY(step())) {
      const auto index = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin());
      if (event.finish == FinishReason::kError && failure.ok()) failure = event.error;
      if (on_event && index < ids.size()) on_event(index, event);
    }
  }
  std::vector<Completion> completions;
  completions.reserve(ids.size());
  for (const RequestId id : ids) completions.push_back(*take(id));
  TRY(failure);
  return completions;
}

}  // namespace tessera
