// An engine on a thread of its own: requests from any thread in, events out.
//
//   EngineThread thread(*engine, [&](std::vector<EngineThread::Event> events) { http->post(…); });
//   thread.submit(ticket, std::move(request));
//
// Threads: all functions may be called from any thread. The sink runs on the engine's thread, once after each step that
// moved a request, and must return soon. Nothing else may use the engine until the EngineThread is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/request.h"

namespace tessera {

// The caller's name for a request; unique among those that have not ended.
using Ticket = std::uint64_t;

class EngineThread {
 public:
  struct Event {
    Ticket ticket = 0;
    RequestEvent event{};
    std::unique_ptr<Completion> end{};  // with the last event of an accepted request
  };
  using Sink = std::function<void(std::vector<Event> events)>;

  EngineThread(Engine& engine, Sink sink);
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
