// Runs an engine on its own thread: takes requests from any thread and delivers their events.
//
//   EngineThread thread(*engine, [&](std::span<EngineThread::Event> events) { … });
//   thread.submit(ticket, std::move(request));
//
// Threads: any thread may call all functions. The sink (the function that receives the events) runs on the engine's
// thread, once after each step in which a request progressed, and must return soon. Nothing else may use the engine
// until the EngineThread is destroyed. In a steady decode neither a step nor its events allocate.
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
    // The request's completion, in the request's last event. It is null in all other events. It is also null in the
    // last event if the request was refused or the engine failed.
    std::unique_ptr<Completion> end{};
  };
  // Receives the events of one step, in order; the sink may move from them.
  using Sink = std::function<void(std::span<Event> events)>;

  // Calls `failed` once, on the engine's thread, when the engine fails for good. Before the call, the last events of
  // the engine's requests have been delivered, and health() returns the reason. `failed` may be empty.
  EngineThread(Engine& engine, Sink sink, std::function<void()> failed = {});
  // Cancels the remaining requests without events, and joins the thread.
  ~EngineThread();

  // Submits a request. A refused request gets one event: finish kError with the error, and a null `end`.
  void submit(Ticket ticket, Request request);
  // Ends a request. It gets no more events, except those that come before the engine's thread takes up the
  // cancellation.
  void cancel(Ticket ticket);
  // Ends a request early. Its last event has finish kCancelled, and the completion has the tokens so far. Does nothing
  // for a request that has ended.
  void abort(Ticket ticket);
  // Runs `task` on the engine's thread between two steps.
  void post(std::function<void(Engine&)> task);

  // Returns the statistics as of the last step.
  EngineStats stats() const;
  // Returns ok, or the error that stopped the engine for good (a lost device). All requests then fail with this error.
  Status health() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
