// An engine on a thread of its own: requests from any thread in, events out.
//
//   EngineThread thread(*engine, [&](std::span<EngineThread::Event> events) { … });
//   thread.submit(ticket, std::move(request));
//
// Threads: all functions may be called from any thread. The sink runs on the engine's thread, once after each step that
// moved a request, and must return soon. Nothing else may use the engine until the EngineThread is destroyed. In a
// steady decode neither a step nor its events allocate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/request.h"
#include "tessera/engine/ticket.h"

namespace tessera {

class EngineThread {
 public:
  struct Event {
    Ticket ticket = 0;
    RequestEvent event{};
    std::unique_ptr<Completion> end{};  // with the last event of an accepted request
  };
  // The events of one step, in order; the sink may move from them.
  using Sink = std::function<void(std::span<Event> events)>;

  // `failed` is called once, on the engine's thread, where the engine fails for good: after the events with which its
  // requests end, when health() says why. Empty: not wanted.
  EngineThread(Engine& engine, Sink sink, std::function<void()> failed = {});
  // Cancels the requests that are left, without events, and joins the thread.
  ~EngineThread();

  // A refused request has one event: finish kError, with the error and no end.
  void submit(Ticket ticket, Request request);
  // No more events follow, except one that was already sent.
  void cancel(Ticket ticket);
  // Runs `task` on the engine's thread between two steps.
  void post(std::function<void(Engine&)> task);

  // As of the last step.
  EngineStats stats() const;
  // Ok, or why the engine no longer serves (a lost device); then all requests fail with this error.
  Status health() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
