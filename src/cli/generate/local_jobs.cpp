#include "tessera/cli/generate/local_jobs.h"

#include <iterator>
#include <utility>

namespace tessera::cli {

LocalJobs::LocalJobs(Engine& engine)
    : engine_(engine, [this](std::span<EngineThread::Event> events) {
        {
          const std::lock_guard lock(mutex_);
          inbox_.insert(inbox_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
        }
        wake_.notify_one();
      }) {}

LocalJobs::Id LocalJobs::start(ApiJob made) {
  std::vector<Request> requests = std::move(made.requests);
  const auto job = std::make_shared<Job>(
      Job{.id = next_ticket_, .api = std::move(made), .count = requests.size(), .remaining = requests.size()});
  for (Request& request : requests) {
    jobs_.emplace(next_ticket_, job);
    engine_.submit(next_ticket_++, std::move(request));
  }
  return job->id;
}

void LocalJobs::cancel(Id id) {
  for (auto found = jobs_.begin(); found != jobs_.end(); ++found) {
    if (found->second->id != id) continue;
    const std::shared_ptr<Job> job = found->second;
    forget(*job);
    return;
  }
}

std::vector<LocalJobs::Update> LocalJobs::wait() {
  std::vector<EngineThread::Event> events;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return woken_ || !inbox_.empty(); });
    woken_ = false;
    events.swap(inbox_);
  }
  std::vector<Update> updates;
  for (EngineThread::Event& event : events) take(std::move(event), updates);
  return updates;
}

void LocalJobs::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

void LocalJobs::take(EngineThread::Event event, std::vector<Update>& updates) {
  const auto found = jobs_.find(event.ticket);
  if (found == jobs_.end()) return;
  const std::shared_ptr<Job> job = found->second;
  const FinishReason finish = event.event.finish;
  if (finish != FinishReason::kNone) {
    jobs_.erase(found);
    --job->remaining;
  }
  Update update{.job = job->id};
  if (finish == FinishReason::kError || finish == FinishReason::kTimeout) {
    update.ended = true;
    update.error = api_error(event.event.error);
    forget(*job);
  } else {
    if (event.end != nullptr) {
      update.prompt_tokens = event.end->prompt_tokens;
      update.output_tokens = std::ssize(event.end->output_ids);
    }
    job->api.answer->on_event(event.ticket - job->id, event.event, event.end.get(), update.events);
    update.ended = job->remaining == 0;
    if (const Status failure = job->api.answer->failure(); !failure.ok()) {
      update.ended = true;
      update.error = api_error(failure);
      update.events.clear();  // made of a wrong text; the error replaces them
      forget(*job);
    } else if (update.ended && !job->api.stream) {
      update.body = job->api.answer->body();
    }
  }
  updates.push_back(std::move(update));
}

void LocalJobs::forget(const Job& job) {
  for (std::size_t i = 0; i < job.count; ++i) {
    if (jobs_.erase(job.id + i) > 0) engine_.cancel(job.id + i);
  }
}

}  // namespace tessera::cli
