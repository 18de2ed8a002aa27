#include "tessera/capi/embedded_engine.h"

#include <unistd.h>

#include <exception>
#include <utility>
#include <vector>

#include "tessera/capi/errors.h"

namespace tessera::capi {
namespace {

Status in_fork() {
  return failed_precondition(
      "this process was forked from one that had opened an engine, and lacks the engine's threads; accepted: a process "
      "that starts anew (exec; in Python multiprocessing's \"spawn\")");
}

Status closed() { return failed_precondition("the engine is being closed"); }

// Calls `function` with the JSON of each server-sent event in `stream`.
template <class Function>
void for_each_chunk(std::string_view stream, const Function& function) {
  constexpr std::string_view kBegin = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  while (stream.starts_with(kBegin)) {
    const std::size_t end = stream.find(kEnd);
    function(stream.substr(kBegin.size(), end - kBegin.size()));
    stream.remove_prefix(end == std::string_view::npos ? stream.size() : end + kEnd.size());
  }
}

}  // namespace

Result<std::shared_ptr<EmbeddedEngine>> EmbeddedEngine::create(const OpenOptions& options) {
  static const pid_t first_process = ::getpid();
  if (::getpid() != first_process) return in_fork();
  TRY(check_kv_events(options.server.kv_events, 1).with_context("--kv-events-config"));  // before the model is loaded
  std::unique_ptr<Engine> engine = TRY(Engine::create(options.engine));
  std::shared_ptr<EmbeddedEngine> made(new EmbeddedEngine(std::move(engine)));
  made->model_ = TRY(ServedModel::create(options.server, *made->engine_));
  made->kv_events_ =
      TRY(KvEvents::start(options.server.kv_events, {made->engine_.get()}).with_context("--kv-events-config"));
  EmbeddedEngine* self = made.get();
  made->thread_.emplace(*made->engine_, [self](std::span<EngineThread::Event> events) { self->take_all(events); });
  return made;
}

EmbeddedEngine::EmbeddedEngine(std::unique_ptr<Engine> engine) : process_(::getpid()), engine_(std::move(engine)) {}

EmbeddedEngine::~EmbeddedEngine() { stop(); }

Status EmbeddedEngine::check_process() const {
  if (::getpid() == process_) return ok_status();
  return in_fork();
}

Result<std::shared_ptr<EmbeddedEngine::Job>> EmbeddedEngine::submit(ApiJob api, std::shared_ptr<EventQueue> events) {
  TRY(check_process());
  std::vector<Request> requests = std::move(api.requests);
  auto job = std::make_shared<Job>(Job{.api = std::move(api),
                                       .first = 0,
                                       .count = requests.size(),
                                       .remaining = requests.size(),
                                       .events = std::move(events)});
  const std::shared_lock alive(thread_mutex_);
  if (stopped_) return closed();
  // Holds the mutex until all requests are submitted. An event of the first request may cancel the other requests, and
  // the cancellation of a request that is not submitted yet would be lost.
  const std::lock_guard lock(jobs_mutex_);
  job->first = next_ticket_;
  next_ticket_ += job->count;
  for (std::size_t i = 0; i < job->count; ++i) jobs_.emplace(job->first + i, job);
  for (std::size_t i = 0; i < job->count; ++i) thread_->submit(job->first + i, std::move(requests[i]));
  return job;
}

void EmbeddedEngine::cancel(std::shared_ptr<Job> job) {
  if (!check_process().ok()) return;
  const std::shared_lock alive(thread_mutex_);
  if (stopped_) return;  // stop() has ended all jobs
  thread_->post([this, job = std::move(job)](Engine&) {
    end_with(*job, TESSERA_CANCELLED, api_error(cancelled("the request was cancelled")));
  });
}

Result<EngineStats> EmbeddedEngine::stats() const {
  TRY(check_process());
  const std::shared_lock alive(thread_mutex_);
  if (stopped_) return closed();
  return thread_->stats();
}

Status EmbeddedEngine::health() const {
  TRY(check_process());
  const std::shared_lock alive(thread_mutex_);
  return stopped_ ? closed() : thread_->health();
}

Status EmbeddedEngine::post(std::function<void(Engine&)> task) {
  TRY(check_process());
  const std::shared_lock alive(thread_mutex_);
  if (stopped_) return closed();
  thread_->post(std::move(task));
  return ok_status();
}

Result<std::string> EmbeddedEngine::ask_engine(std::function<std::string(Engine&)> read) {
  auto answer = std::make_shared<std::promise<Result<std::string>>>();
  std::future<Result<std::string>> future = answer->get_future();
  // Only the task owns the promise. If the thread drops the task, the promise is therefore broken, and the wait ends.
  TRY(post([answer = std::move(answer), read = std::move(read)](Engine& engine) {
    try {
      answer->set_value(read(engine));
    } catch (const std::exception& e) {
      answer->set_value(internal_error(e.what()));
    }
  }));
  return TRY(await(std::move(future)));
}

void EmbeddedEngine::stop() {
  {
    const std::unique_lock alive(thread_mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  thread_.reset();  // safe without the lock: once stopped_ is set, no function uses thread_
  kv_events_.reset();
  std::unordered_map<Ticket, std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(jobs_mutex_);
    left.swap(jobs_);
  }
  for (const auto& [ticket, job] : left)
    end_with(*job, TESSERA_CANCELLED, api_error(cancelled("the engine was closed before the request's end")));
}

void EmbeddedEngine::take_all(std::span<EngineThread::Event> events) {
  for (EngineThread::Event& event : events) {
    std::shared_ptr<Job> job;
    {
      const std::lock_guard lock(jobs_mutex_);
      const auto found = jobs_.find(event.ticket);
      if (found == jobs_.end()) continue;  // the engine had sent the event before the job ended
      job = found->second;
      if (event.event.finish != FinishReason::kNone) jobs_.erase(found);
    }
    try {
      take(*job, event);
    } catch (const std::exception& e) {  // mostly out of memory
      end_with(*job, TESSERA_INTERNAL, api_error(internal_error(e.what())));
    }
  }
}

void EmbeddedEngine::take(Job& job, EngineThread::Event& event) {
  const FinishReason finish = event.event.finish;
  if (finish == FinishReason::kError || finish == FinishReason::kTimeout) {
    end_with(job, code_of(event.event.error.code()), api_error(event.event.error));
    return;
  }
  if (finish != FinishReason::kNone) --job.remaining;
  std::string stream;
  job.api.answer->on_event(event.ticket - job.first, event.event, event.end.get(), stream);
  if (const Status failure = job.api.answer->failure(); !failure.ok()) {
    end_with(job, code_of(failure.code()), api_error(failure));
    return;
  }
  const bool ended = job.remaining == 0;
  if (job.api.stream) {
    if (ended) stream += job.api.answer->last_events();
    bool goes_on = true;
    for_each_chunk(stream, [&](std::string_view chunk) {
      goes_on = goes_on && job.events->push({.kind = TESSERA_EVENT_CHUNK, .json = std::string(chunk)});
    });
    if (!goes_on) {
      end_with(job, TESSERA_CANCELLED, api_error(cancelled("the request's callback has cancelled it")));
      return;
    }
  }
  if (!ended) return;
  job.events->push({.kind = TESSERA_EVENT_END, .json = job.api.stream ? "" : job.api.answer->body()});
  job.api.answer.reset();
}

void EmbeddedEngine::end_with(Job& job, tessera_code code, const ApiError& error) {
  for (std::size_t i = 0; i < job.count; ++i) {
    const Ticket ticket = job.first + i;
    {
      const std::lock_guard lock(jobs_mutex_);
      if (jobs_.erase(ticket) == 0) continue;
    }
    const std::shared_lock alive(thread_mutex_);
    if (!stopped_) thread_->cancel(ticket);  // stop() ends the thread, and all requests with it
  }
  job.events->push({.kind = TESSERA_EVENT_ERROR, .code = code, .json = error.to_json(), .message = error.message});
  job.api.answer.reset();
}

}  // namespace tessera::capi
