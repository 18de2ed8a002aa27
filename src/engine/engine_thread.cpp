#include "tessera/engine/engine_thread.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

struct EngineThread::Impl {
  struct Submit {
    Ticket ticket;
    Request request;
  };
  struct Cancel {
    Ticket ticket;
  };
  struct Abort {
    Ticket ticket;
  };
  using Task = std::function<void(Engine&)>;
  using Command = std::variant<Submit, Cancel, Abort, Task>;

  // The engine must be idle for this time before it begins to measure. Most clients send their next request sooner, so
  // a measurement seldom delays a request.
  static constexpr std::chrono::milliseconds kRestBeforeMeasuring{20};

  Impl(Engine& engine, Sink sink, std::function<void()> failed)
      : engine_(engine), sink_(std::move(sink)), failed_(std::move(failed)), stats_(engine.stats()) {
    engine_.peers().when_lost([this] { send(Task([](Engine&) {})); });
    engine_.peers().when_awaited([this] { send(Task([](Engine&) {})); });
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    engine_.peers().when_lost(nullptr);
    engine_.peers().when_awaited(nullptr);
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void send(Command command) {
    {
      const std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(command));
    }
    wake_.notify_one();
  }

  void run() {
    std::vector<Command> commands;
    while (receive(commands)) {
      try {
        const bool nothing_came = commands.empty();
        carry_out_all(commands);
        notice_loss();
        if (health_.ok() && has_work()) {
          // Steps only when a step is due, so that a request that arrives while a forward runs joins the next forward.
          if (nothing_came || std::chrono::steady_clock::now() >= engine_.step_due()) step();
        } else if (health_.ok() && nothing_came) {
          work_while_idle();
        }
        engine_.report_cache_events();
      } catch (const std::exception& e) {  // usually out of memory; the state that was being changed is unknown
        const Status error = internal_error(fmt::format("the engine ended by an exception: {}", e.what()));
        refuse_rest(commands, error);
        fail_all(error);
      }
      publish();
      deliver();
    }
    for (const auto& [id, ticket] : tickets_) engine_.cancel(id);
    while (health_.ok() && !engine_.idle() && engine_.step().ok()) {
    }
    for (const auto& [id, ticket] : tickets_) engine_.take(id);
    engine_.peers().leave(engine_.runner());
  }

  // Returns whether this engine has requests, or another engine needs it for a common forward.
  bool has_work() const { return !engine_.idle() || engine_.peers().awaiting(); }

  // Fails all requests if a node was lost, even while no step runs.
  void notice_loss() {
    if (!health_.ok()) return;
    if (Status health = engine_.health(); !health.ok()) fail_all(std::move(health));
  }

  void carry_out_all(std::vector<Command>& commands) {
    const StepProfiler::Scope requests(engine_.profiler(), HostWork::kRequests);
    for (; carried_out_ < commands.size(); ++carried_out_)
      std::visit([this](auto& c) { carry_out(c); }, commands[carried_out_]);
    commands.clear();
    carried_out_ = 0;
  }

  // Refuses the command that threw an exception and all later commands, so that every refused request still gets a last
  // event.
  void refuse_rest(std::vector<Command>& commands, const Status& error) {
    for (; carried_out_ < commands.size(); ++carried_out_) {
      if (const Submit* submit = std::get_if<Submit>(&commands[carried_out_]))
        events_.push_back({.ticket = submit->ticket, .event = {.finish = FinishReason::kError, .error = error}});
    }
    commands.clear();
    carried_out_ = 0;
  }

  void deliver() {
    const StepProfiler::Scope delivering(engine_.profiler(), HostWork::kDeliver);
    if (!events_.empty()) sink_(events_);
    events_.clear();
    if (health_.ok() || !failed_) return;
    failed_();
    failed_ = nullptr;
  }

  // Waits for commands. If there is a forward to make, waits at most until the next step is due. If only idle work is
  // left, waits at most for a short pause. Otherwise waits without a limit. Returns false once the thread must end.
  bool receive(std::vector<Command>& commands) {
    const StepProfiler::Scope idle(engine_.profiler(), HostWork::kIdle);
    std::unique_lock lock(mutex_);
    const bool runs = health_.ok() && has_work();
    const auto woken = [&] { return stopping_ || !inbox_.empty() || runs; };
    if (runs) {
      wake_.wait_until(lock, engine_.step_due(), [&] { return stopping_ || !inbox_.empty(); });
    } else if (health_.ok() && idle_work_left_) {
      // Waits for kRestBeforeMeasuring only before measurements. Captures are short and hardly delay a request, so they
      // start at once.
      if (!woken() && !engine_.captures_when_idle()) wake_.wait_for(lock, kRestBeforeMeasuring, woken);
    } else {
      wake_.wait(lock, woken);
    }
    std::swap(commands, inbox_);
    return !stopping_;
  }

  void work_while_idle() {
    const StepProfiler::Scope working(engine_.profiler(), HostWork::kIdleWork);
    const Result<bool> left = engine_.idle_work();
    if (left.ok()) {
      idle_work_left_ = *left;
    } else {
      fail_all(left.status());
    }
  }

  void carry_out(Submit& submit) {
    Result<RequestId> id = health_.ok() ? engine_.submit(std::move(submit.request)) : Result<RequestId>(health_);
    if (id.ok()) {
      ids_.emplace(submit.ticket, *id);
      // Inserts into tickets_ last, after everything else that may throw an exception. fail_all() ends the requests in
      // tickets_, and refuse_rest() ends the request whose command threw an exception. No request is ended by both,
      // because a request whose command threw an exception is not in tickets_.
      tickets_.emplace(*id, submit.ticket);
    } else {
      events_.push_back(
          {.ticket = submit.ticket, .event = {.finish = FinishReason::kError, .error = std::move(id).status()}});
    }
  }

  void carry_out(const Cancel& cancel) { end(cancel.ticket); }

  void carry_out(const Abort& abort) {
    if (std::optional<Completion> done = end(abort.ticket)) {
      events_.push_back({.ticket = abort.ticket,
                         .event = {.finish = FinishReason::kCancelled},
                         .end = std::make_unique<Completion>(*std::move(done))});
    }
  }

  // Ends a request without an event. Returns nothing if the request has already ended.
  std::optional<Completion> end(Ticket ticket) {
    const auto it = ids_.find(ticket);
    if (it == ids_.end()) return std::nullopt;
    engine_.cancel(it->second);
    std::optional<Completion> done = engine_.take(it->second);
    tickets_.erase(it->second);
    ids_.erase(it);
    return done;
  }

  void carry_out(const Task& task) { task(engine_); }

  void step() {
    idle_work_left_ = true;  // the step may have captured a size or bound a kernel, which idle work can measure
    Result<std::span<RequestEvent>> moved = engine_.step();
    if (!moved.ok()) {
      fail_all(std::move(moved).status());
      return;
    }
    for (RequestEvent& event : *moved) {
      const auto it = tickets_.find(event.request);
      if (it == tickets_.end()) continue;
      Event out{.ticket = it->second, .event = std::move(event)};
      if (out.event.finish != FinishReason::kNone) {
        if (std::optional<Completion> end = engine_.take(it->first))
          out.end = std::make_unique<Completion>(*std::move(end));
        ids_.erase(it->second);
        tickets_.erase(it);
      }
      events_.push_back(std::move(out));
    }
  }

  void fail_all(Status error) {
    for (const auto& [id, ticket] : tickets_) {
      engine_.cancel(id);
      engine_.take(id);
      events_.push_back({.ticket = ticket, .event = {.request = id, .finish = FinishReason::kError, .error = error}});
    }
    tickets_.clear();
    ids_.clear();
    health_ = std::move(error);
    engine_.peers().fail(health_);
  }

  void publish() {
    engine_.read_stats(next_stats_);
    const std::lock_guard lock(mutex_);
    std::swap(stats_, next_stats_);
    published_health_ = health_;
  }

  Engine& engine_;
  Sink sink_;
  std::function<void()> failed_;  // empty after its call
  // Only the engine's thread uses the next six members.
  std::unordered_map<RequestId, Ticket> tickets_;
  std::unordered_map<Ticket, RequestId> ids_;
  std::vector<Event> events_;
  std::size_t carried_out_ = 0;  // number of commands carried out so far
  Status health_;
  bool idle_work_left_ = true;
  EngineStats next_stats_;  // swapped with stats_, so that both keep their memory
  // The mutex guards the members below it, except the thread.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> inbox_;
  bool stopping_ = false;
  EngineStats stats_;
  Status published_health_;

  std::thread thread_;
};

EngineThread::EngineThread(Engine& engine, Sink sink, std::function<void()> failed)
    : impl_(std::make_unique<Impl>(engine, std::move(sink), std::move(failed))) {}
EngineThread::~EngineThread() = default;

void EngineThread::submit(Ticket ticket, Request request) { impl_->send(Impl::Submit{ticket, std::move(request)}); }
void EngineThread::cancel(Ticket ticket) { impl_->send(Impl::Cancel{ticket}); }
void EngineThread::abort(Ticket ticket) { impl_->send(Impl::Abort{ticket}); }
void EngineThread::post(std::function<void(Engine&)> task) { impl_->send(std::move(task)); }

EngineStats EngineThread::stats() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->stats_;
}

Status EngineThread::health() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->published_health_;
}

}  // namespace tessera
