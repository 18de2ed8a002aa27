#include "tessera/cli/generate/local_jobs.h"

#include <iterator>
#include <optional>

namespace tessera::cli {

LocalJobs::LocalJobs(Engine& engine)
    : jobs_({.submit = [this](Ticket ticket, Request request) { engine_.submit(ticket, std::move(request)); },
             .cancel = [this](Ticket ticket) { engine_.cancel(ticket); }},
            /*first_ticket=*/1),
      engine_(engine, [this](std::span<EngineThread::Event> events) {
        {
          const std::lock_guard lock(mutex_);
          inbox_.insert(inbox_.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
        }
        wake_.notify_one();
      }) {}

std::vector<LocalJobs::Update> LocalJobs::wait() {
  std::vector<EngineThread::Event> events;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return woken_ || !inbox_.empty(); });
    woken_ = false;
    events.swap(inbox_);
  }
  std::vector<Update> updates;
  for (EngineThread::Event& event : events) {
    if (std::optional<Update> update = jobs_.take(std::move(event))) updates.push_back(*std::move(update));
  }
  return updates;
}

void LocalJobs::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

}  // namespace tessera::cli
