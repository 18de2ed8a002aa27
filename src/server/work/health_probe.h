// GET /health_generate: sends a request for one token, or one embedding, through the whole engine. The request has
// priority over all waiting requests (kProbePriority). Only one probe runs at a time. Calls that arrive while it runs
// share its result.
//
//   HealthProbe probe(generates, submit);
//   probe.ask(call);
//   probe.dispatch(events);  // with the events of every step
//
// Threads: used on the I/O thread only.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/engine/engine_thread.h"
#include "tessera/server/http/call.h"

namespace tessera {

class HealthProbe {
 public:
  // The probe's ticket, which LiveJobs gives to no job.
  static constexpr Ticket kTicket = 0;
  using Submit = std::function<void(Ticket ticket, Request request)>;

  // `generates`: whether the model makes tokens (otherwise it embeds or classifies).
  HealthProbe(bool generates, Submit submit) : generates_(generates), submit_(std::move(submit)) {}

  // Answers 200 with an empty body, or the engine's error, when the probe has ended.
  void ask(Call call);
  void dispatch(std::span<const EngineThread::Event> events);
  // Answers all waiting calls with `error`.
  void fail_all(const ApiError& error);

 private:
  bool generates_;
  Submit submit_;
  bool under_way_ = false;
  std::vector<Call> calls_;
};

}  // namespace tessera
