#include "tessera/server/work/engine_jobs.h"

#include <exception>
#include <vector>

#include "tessera/server/work/generation_facts.h"

namespace tessera {

EngineJobs::Id EngineJobs::start(ApiJob made) {
  std::vector<Request> requests = std::move(made.requests);
  const auto job = std::make_shared<Job>(
      Job{.id = next_ticket_, .api = std::move(made), .count = requests.size(), .remaining = requests.size()});
  note_start(job->facts, job->api.id, requests);
  for (Request& request : requests) {
    jobs_.emplace(next_ticket_, job);
    hooks_.submit(next_ticket_++, std::move(request));
  }
  return job->id;
}

void EngineJobs::cancel(Id id) {
  for (auto found = jobs_.begin(); found != jobs_.end(); ++found) {
    if (found->second->id != id) continue;
    const std::shared_ptr<Job> job = found->second;
    forget(*job);
    return;
  }
}

std::optional<EngineJobs::Update> EngineJobs::take(EngineThread::Event event) {
  const auto found = jobs_.find(event.ticket);
  if (found == jobs_.end()) return std::nullopt;
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
    job->facts.finish = finish_reason_name(finish);
    update.facts = std::move(job->facts);
    forget(*job);
    return update;
  }
  if (event.end != nullptr) {
    update.prompt_tokens = event.end->prompt_tokens;
    update.output_tokens = std::ssize(event.end->output_ids);
    note_end(job->facts, *event.end, finish);
  }
  if (const Status answered = answer(*job, event, update); !answered.ok()) {
    update.ended = true;
    update.error = api_error(answered);
    update.events.clear();  // drops events of a faulty text; the error replaces them
    forget(*job);
  }
  if (update.ended) update.facts = std::move(job->facts);
  return update;
}

Status EngineJobs::answer(Job& job, EngineThread::Event& event, Update& update) {
  Answer& answer = *job.api.answer;
  try {
    answer.on_event(event.ticket - job.id, event.event, event.end.get(), update.events);
    TRY(answer.failure());
    update.ended = job.remaining == 0;
    if (update.ended && !job.api.stream) {
      update.body = answer.body();
      update.usage = answer.usage();
    }
  } catch (const std::exception& e) {  // usually std::bad_alloc; only this job fails
    return internal_error(e.what());
  }
  return ok_status();
}

void EngineJobs::forget(const Job& job) {
  for (std::size_t i = 0; i < job.count; ++i) {
    if (jobs_.erase(job.id + i) > 0) hooks_.cancel(job.id + i);
  }
}

}  // namespace tessera
