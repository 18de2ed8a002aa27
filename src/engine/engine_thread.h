// An engine on a thread of its own: requests from any thread in, events out.
//
//   EngineThread thread(*engine, [&](std::vector<EngineThread::Event> events) { http->post(…); });
//   thread.submit(ticket, std::move(request));
//
// Threads: all functions may be called from any thread. The sink runs on the engine's thread, once after each step that
// moved a request, and must return soon. Until the EngineThread is destroyed nobody else touches the engine.
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

// The caller's name of a request; no two that are alive may be the same.
using Ticket = std::uint64_t;

class EngineThread {
 public:
  struct Event {
    Ticket ticket = 0;
    RequestEvent event{};
    std::unique_ptr<Completion> end{};  // with the last event of a request that was taken
  };
  using Sink = std::function<void(std::vector<Event> events)>;

  EngineThread(Engine& engine, Sink sink);
  // Cancels what is left, without events, and joins the thread.
  ~EngineThread();

  // A refused request has one event: finish kError, with the error and no end.
  void submit(Ticket ticket, Request request);
  // No more events of it come, but one that is on its way.
  void cancel(Ticket ticket);
  // Runs `task` on the engine's thread between two steps.
  void post(std::function<void(Engine&)> task);

  // As of the last step.
  EngineStats stats() const;
  // Ok, or why the engine serves no more (a lost device); then all requests fail with it.
  Status health() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
