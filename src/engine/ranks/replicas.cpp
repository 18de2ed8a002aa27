#include "tessera/engine/ranks/replicas.h"

#include <utility>

#include "tessera/base/log.h"

namespace tessera {

Replicas::Replicas(std::span<Engine* const> engines, EngineThread::Sink sink, const std::function<void()>& failed)
    : sink_(std::move(sink)) {
  if (engines.size() > 1) {
    const EngineStats first = engines.front()->stats();
    choice_.emplace(static_cast<int>(engines.size()), first.fullest_group().usable_pages * first.page_size);
  }
  threads_.reserve(engines.size());
  for (Engine* engine : engines) {
    const auto take = [this](std::span<EngineThread::Event> events) {
      if (choice_) follow(events);
      sink_(events);
    };
    threads_.push_back(std::make_unique<EngineThread>(*engine, take, failed));
  }
}

void Replicas::leave_out_failed() {
  for (int r = 0; r < size(); ++r) {
    const Status error = health(r);
    if (error.ok() || !choice_->serves(r)) continue;
    choice_->leave_out(r);
    log_error("server", "replica {} has failed: {}; {} of {} serve on", r, error.message(), choice_->serving(), size());
  }
}

int Replicas::choose(Ticket ticket, const Request& request) {
  if (!choice_) return 0;
  const std::lock_guard lock(mutex_);
  leave_out_failed();
  return choice_->choose(ticket, request.prompt, request.adapter);
}

void Replicas::submit(Ticket ticket, Request request) {
  const int replica = choose(ticket, request);
  threads_[static_cast<std::size_t>(replica)]->submit(ticket, std::move(request));
}

void Replicas::cancel(Ticket ticket) {
  int replica = 0;
  if (choice_) {
    const std::lock_guard lock(mutex_);
    replica = choice_->replica_of(ticket);
    choice_->ended(ticket);
  }
  if (replica >= 0) threads_[static_cast<std::size_t>(replica)]->cancel(ticket);
}

void Replicas::abort(Ticket ticket) {
  int replica = 0;
  if (choice_) {
    const std::lock_guard lock(mutex_);
    // The ticket stays in choice_. The aborted request still gets a last event, and follow() removes the ticket then.
    replica = choice_->replica_of(ticket);
  }
  if (replica >= 0) threads_[static_cast<std::size_t>(replica)]->abort(ticket);
}

void Replicas::follow(std::span<EngineThread::Event> events) {
  const std::lock_guard lock(mutex_);
  for (const EngineThread::Event& event : events) {
    if (event.event.finish == FinishReason::kNone) {
      choice_->prompt_done(event.ticket);
    } else {
      choice_->ended(event.ticket);
    }
  }
}

void Replicas::post(std::function<void(Engine&)> task) { threads_.front()->post(std::move(task)); }

void Replicas::post_to_all(const std::function<void(Engine&)>& task) {
  for (const auto& thread : threads_) thread->post(task);
}

void Replicas::forget_prefixes() {
  post_to_all([](Engine& engine) { engine.flush_prefix_cache(); });
  if (!choice_) return;
  const std::lock_guard lock(mutex_);
  choice_->forget_prefixes();
}

std::vector<EngineStats> Replicas::each_stats() const {
  std::vector<EngineStats> each;
  for (const auto& thread : threads_) each.push_back(thread->stats());
  return each;
}

Status Replicas::health() const {
  Status last = ok_status();
  for (int r = 0; r < size(); ++r) {
    last = health(r);
    if (last.ok()) return last;
  }
  return last;
}

}  // namespace tessera
