#include "tessera/server/batches/batch_runner.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/server/batches/batch_lines.h"
#include "tessera/server/batches/batch_spans.h"
#include "tessera/server/fields/retention_fields.h"
#include "tessera/server/work/request_memory.h"
#include "tessera/server/work/request_reader.h"
#include "tessera/server/work/text_pools.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kBatchRetry{500};
constexpr std::chrono::seconds kBatchPause{1};  // longest time between two checks while batches run
constexpr std::chrono::seconds kIdlePause{60};  // longest time between two checks while no batch runs
constexpr int kMostPrepared = 16;  // at most this many requests are prepared before the next events are handled
constexpr std::int64_t kLowestPriority = std::numeric_limits<std::int64_t>::min();
// While the engines have live requests, the number of submitted batch requests is at most 1 / kLiveShare of the
// requests that the engines can run at once. One batch request is always allowed.
constexpr std::int64_t kLiveShare = 4;

// Error codes of failed batches.
constexpr const char* kNoInput = "input_file_missing";
constexpr const char* kNotKept = "answers_not_kept";

bool is_for_now(const ApiError& error) { return error.http_status == 429 || error.http_status == 503; }

void take_progress(const BatchAnswers& answers, Batch& batch) {
  batch.completed = answers.completed();
  batch.failed = answers.failed();
  batch.usage = answers.usage();
}

}  // namespace

BatchRunner::BatchRunner(const ServedModel& model, FileStore& files, BatchStore& batches, ResponseStore& responses,
                         Hooks hooks)
    : model_(model),
      files_(files),
      batches_(batches),
      responses_(responses),
      hooks_(std::move(hooks)),
      jobs_({.submit = hooks_.submit, .cancel = hooks_.cancel}, kFirstTicket),
      thread_([this] { work(); }) {}

BatchRunner::~BatchRunner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
  for (const auto& [id, running] : running_) jobs_.cancel(id);
}

void BatchRunner::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void BatchRunner::dispatch(std::span<EngineThread::Event> events) {
  bool taken = false;
  {
    const std::lock_guard lock(mutex_);
    for (EngineThread::Event& event : events) {
      if (event.ticket < kFirstTicket) continue;
      inbox_.push_back(std::move(event));
      taken = true;
    }
  }
  if (taken) wake_.notify_one();
}

std::vector<EngineThread::Event> BatchRunner::wait() {
  std::vector<EngineThread::Event> events;
  const Clock::time_point now = Clock::now();
  Clock::time_point until = now + (runs_.empty() ? kIdlePause : kBatchPause);
  if (try_again_at_ > now) until = std::min(until, try_again_at_);
  std::unique_lock lock(mutex_);
  const bool called = wake_.wait_until(lock, until, [this] { return stopping_ || woken_ || !inbox_.empty(); });
  if (std::exchange(woken_, false) || !called || Clock::now() - looked_at_ > kBatchPause) looks_ = true;
  events.swap(inbox_);
  return events;
}

void BatchRunner::work() {
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), TextPools::kHeavyNice);
  for (;;) {
    for (EngineThread::Event& event : wait()) take(std::move(event));
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    if (hooks_.ends()) continue;  // results that the shutdown caused must not be stored as answers
    try {
      if (std::exchange(looks_, false)) {
        looked_at_ = Clock::now();
        open_batches();
        end_early();
      }
      if (fill()) wake();
      finish();
    } catch (const std::exception& e) {  // usually std::bad_alloc
      log_error("server", "batches are paused after an error: {}", e.what());
      try_again_at_ = Clock::now() + kBatchRetry;
    }
  }
}

void BatchRunner::open_batches() {
  for (const Batch& batch : batches_.running()) {
    const bool opened = std::ranges::any_of(runs_, [&](const auto& run) { return run->batch().id == batch.id; });
    const bool begun = batch.reached[static_cast<std::size_t>(BatchStatus::kInProgress)] != 0;
    if (opened) continue;
    if (!begun && batch.status == BatchStatus::kCancelling) {
      reach(batch, BatchStatus::kCancelled);
    } else if (!begun && batch.expires_at <= unix_time()) {
      reach(batch, BatchStatus::kExpired);
    } else if (runs_.size() < kMostBatches) {
      open(batch);
    }
  }
}

void BatchRunner::reach(const Batch& batch, BatchStatus status) {
  update(batch, [&](Batch& changed) { changed.reach(status, unix_time()); });
}

void BatchRunner::update(const Batch& batch, const std::function<void(Batch& batch)>& change) {
  ApiResult<Batch> changed = batches_.update(batch.id, change);
  if (!hooks_.trace || !changed.ok() || !changed->ended()) return;
  if (std::optional<TraceSpan> span = make_batch_span(*changed, unix_nanoseconds())) hooks_.trace(*std::move(span));
}

void BatchRunner::trace(const BatchRun& run, const BatchRun::Next& request, Clock::time_point began, int status,
                        GenerationFacts facts) const {
  if (!hooks_.trace) return;
  facts.route = batch_url(request.request.kind);
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  FinishedRequest finished{.method = "POST", .status = status, .seconds = seconds, .generation = std::move(facts)};
  if (std::optional<TraceSpan> span =
          make_line_span(run.batch(), request.custom_id, std::move(finished), unix_nanoseconds()))
    hooks_.trace(*std::move(span));
}

void BatchRunner::open(const Batch& waiting) {
  const auto fail_with = [&](std::vector<BatchFault> faults) {
    update(waiting, [&](Batch& batch) {
      batch.errors = std::move(faults);
      batch.reach(BatchStatus::kFailed, unix_time());
    });
  };
  const ApiResult<StoredFile> file = files_.find(waiting.input_file_id, waiting.owner);
  if (!file.ok()) return fail_with({{.code = kNoInput, .message = "the input file was deleted or has expired"}});
  const std::filesystem::path path = files_.path_of(waiting.input_file_id);
  std::int64_t total = waiting.total;
  if (waiting.status == BatchStatus::kValidating) {
    Result<CheckedInput> checked = check_batch_input(path, waiting.endpoint);
    if (!checked.ok()) return fail_with({{.code = kNoInput, .message = checked.status().message()}});
    if (!checked->faults.empty()) return fail_with(std::move(checked->faults));
    total = checked->requests;
  }
  Result<BatchInput> input = BatchInput::open(path);
  if (!input.ok()) return fail_with({{.code = kNoInput, .message = input.status().message()}});
  auto answers = BatchAnswers::open(batches_.output_of(waiting.id), batches_.errors_of(waiting.id), files_);
  if (!answers.ok()) return fail_with({{.code = kNotKept, .message = answers.status().message()}});
  ApiResult<Batch> begun = batches_.update(waiting.id, [&](Batch& batch) {
    batch.total = total;
    take_progress(**answers, batch);
    if (batch.status == BatchStatus::kValidating) batch.reach(BatchStatus::kInProgress, unix_time());
  });
  if (begun.ok())
    runs_.push_back(std::make_unique<BatchRun>(*std::move(begun), *std::move(input), *std::move(answers)));
}

std::int64_t BatchRunner::room() const {
  const bool live = hooks_.engine_requests() > requests_;
  const std::int64_t most = live ? std::max<std::int64_t>(1, hooks_.most_requests / kLiveShare) : hooks_.most_requests;
  return most - requests_;
}

bool BatchRunner::fill() {
  if (Clock::now() < try_again_at_) return false;
  if (runs_.empty()) return false;
  const std::int64_t most = requests_ + room();
  int prepared = 0;
  std::size_t without = 0;  // number of consecutive batches that have no request to start
  while (!runs_.empty() && without < runs_.size() && requests_ < most) {
    BatchRun& run = *runs_.front();
    runs_.splice(runs_.end(), runs_, runs_.begin());
    std::optional<BatchRun::Next> next = run.next();
    if (!next) {
      ++without;
      continue;
    }
    without = 0;
    if (!start(run, *std::move(next))) {
      try_again_at_ = Clock::now() + kBatchRetry;
      return false;
    }
    if (++prepared == kMostPrepared) return true;
  }
  return false;
}

bool BatchRunner::start(BatchRun& run, BatchRun::Next next) {
  const Clock::time_point began = Clock::now();
  MemoryCharge memory(model_.memory.get());
  const auto prepare = [&]() -> ApiResult<ApiJob> {
    TRY(memory.set(reading_bytes(next.request.body)));
    ApiJob job = TRY(
        guarded<ApiJob>([&] { return prepare_batch_request(model_, next.request, responses_, run.batch().owner); }));
    TRY(memory.set(held_bytes(job, model_.num_logits(), model_.hidden_size)));
    return job;
  };
  ApiResult<ApiJob> job = prepare();
  if (!job.ok() && is_for_now(job.error())) {
    run.put_back(std::move(next));
    return false;
  }
  run.begin();
  if (!job.ok() || job->requests.empty()) {
    trace(run, next, began, job.ok() ? 200 : job.error().http_status, {});
    const std::string line = job.ok() ? batch_answer(next.custom_id, job->id, job->answer->body())
                                      : batch_refusal(next.custom_id, job.error());
    end(run, next.custom_id, line, job.ok() ? std::optional(job->answer->usage()) : std::nullopt);
    return true;
  }
  for (Request& request : job->requests) request.priority = kLowestPriority;
  own_sessions([&] { return run.batch().owner; }, job->requests);
  Running running{.run = &run,
                  .request = std::move(next),
                  .requests = std::ssize(job->requests),
                  .answer_id = job->id,
                  .memory = std::move(memory),
                  .began = began};
  requests_ += running.requests;
  running_.emplace(jobs_.start(*std::move(job)), std::move(running));
  return true;
}

void BatchRunner::take(EngineThread::Event event) {
  const std::optional<EngineJobs::Update> update = jobs_.take(std::move(event));
  if (!update || !update->ended) return;
  Running running = std::move(running_.extract(update->job).mapped());
  requests_ -= running.requests;
  BatchRun& run = *running.run;
  const std::string& id = running.request.custom_id;
  if (update->error && (is_for_now(*update->error) || hooks_.ends())) {
    try_again_at_ = Clock::now() + kBatchRetry;
    return run.end_without_answer(std::move(running.request));
  }
  trace(run, running.request, running.began, update->error ? update->error->http_status : 200, *update->facts);
  if (update->error) {
    end(run, id, batch_refusal(id, *update->error), /*usage=*/{});
  } else {
    end(run, id, batch_answer(id, running.answer_id, update->body), update->usage);
  }
}

void BatchRunner::end(BatchRun& run, const std::string& custom_id, std::string_view line,
                      const std::optional<Usage>& usage) {
  if (const Status kept = run.end(custom_id, line, usage); !kept.ok()) return fail(run, kept);
  batches_.note(run.batch().id, [&](Batch& batch) { take_progress(run.answers(), batch); });
}

void BatchRunner::drop(const BatchRun& run) {
  for (auto each = running_.begin(); each != running_.end();) {
    Running& running = each->second;
    if (running.run != &run) {
      ++each;
      continue;
    }
    jobs_.cancel(each->first);
    requests_ -= running.requests;
    running.run->end_without_answer(std::move(running.request));
    each = running_.erase(each);
  }
}

void BatchRunner::end_early() {
  const std::int64_t now = unix_time();
  for (auto each = runs_.begin(); each != runs_.end();) {
    BatchRun& run = **each++;  // advances first, because finish() removes the batch
    ApiResult<Batch> batch = batches_.find(run.batch().id, run.batch().owner);
    const bool cancelled = batch.ok() && batch->status == BatchStatus::kCancelling;
    if (!cancelled && run.batch().expires_at > now) continue;
    drop(run);
    const Status kept =
        cancelled ? run.refuse_rest("batch_cancelled", "the batch was cancelled before this request was answered")
                  : run.refuse_rest("batch_expired", "this request was not answered within the completion window");
    if (kept.ok()) {
      finish(run, cancelled ? BatchStatus::kCancelled : BatchStatus::kExpired);
    } else {
      fail(run, kept);
    }
  }
}

void BatchRunner::finish() {
  for (auto each = runs_.begin(); each != runs_.end();) {
    BatchRun& run = **each++;
    if (run.done()) finish(run, BatchStatus::kCompleted);
  }
}

void BatchRunner::finish(BatchRun& run, BatchStatus status) {
  const Batch& begun = run.batch();
  if (status == BatchStatus::kCompleted) reach(begun, BatchStatus::kFinalizing);
  std::string output;
  std::string errors;
  const StoredFile like{
      .owner = begun.owner, .purpose = "batch_output", .expires_at = unix_time() + begun.output_age_s};
  const ApiStatus kept = run.answers().keep(like, begun.id, output, errors);
  update(begun, [&](Batch& batch) {
    take_progress(run.answers(), batch);
    batch.output_file_id = output;
    batch.error_file_id = errors;
    if (!kept.ok()) batch.errors.push_back({.code = kNotKept, .message = kept.error().message});
    batch.reach(kept.ok() ? status : BatchStatus::kFailed, unix_time());
  });
  runs_.remove_if([&](const auto& each) { return each.get() == &run; });
  looks_ = true;  // checks at once, because a waiting batch may start now
}

void BatchRunner::fail(BatchRun& run, const Status& why) {
  drop(run);
  (void)batches_.update(run.batch().id,
                        [&](Batch& batch) { batch.errors.push_back({.code = kNotKept, .message = why.message()}); });
  finish(run, BatchStatus::kFailed);
}

}  // namespace tessera
