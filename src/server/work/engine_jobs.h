// Runs jobs (api_job.h) for callers in this process, such as BatchRunner. A job consists of requests for the engine and
// an object that turns the engine's events into an answer. EngineJobs passes each event to the answer of its job, and
// returns the output that the event adds. LiveJobs runs the jobs that HTTP clients wait for.
//
//   EngineJobs jobs({.submit = submit, .cancel = cancel}, /*first_ticket=*/1);
//   jobs.start(job);
//   if (std::optional<EngineJobs::Update> update = jobs.take(event)) …  // for every event of the engine
//
// Threads: one thread at a time may use an object.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "tessera/engine/engine_thread.h"
#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/http/http.h"

namespace tessera {

class EngineJobs {
 public:
  using Id = Ticket;

  // The output that one event adds to a job's answer.
  struct Update {
    Id job = 0;
    std::string events{};             // for a stream: whole server-sent events
    bool ended = false;               // this is the job's last update
    std::string body{};               // set at the end if the job does not stream
    std::optional<ApiError> error{};  // set at the end if the job failed
    // Token counts of the request that ended with this event; 0 if no request ended. The caller adds them up.
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
    Usage usage{};                           // token counts of the answer; set at the end if the job does not stream
    std::optional<GenerationFacts> facts{};  // set at the end
  };
  struct Hooks {
    std::function<void(Ticket, Request)> submit;
    std::function<void(Ticket)> cancel;
  };

  // Requests get the tickets from `first_ticket` up. No other caller of the engine may use these tickets.
  EngineJobs(Hooks hooks, Ticket first_ticket) : hooks_(std::move(hooks)), next_ticket_(first_ticket) {}

  // Submits the job's requests. Everything that the job borrows must outlive the job. Precondition: the job has a
  // request.
  Id start(ApiJob made);
  // Cancels the job, which then gets no more updates.
  void cancel(Id id);
  // Takes an event. Returns nothing if the event belongs to no running job.
  std::optional<Update> take(EngineThread::Event event);

 private:
  struct Job {
    Id id = 0;
    ApiJob api;
    std::size_t count = 0;      // number of requests; their tickets are id, id + 1, …
    std::size_t remaining = 0;  // number of requests that have not ended
    GenerationFacts facts{};
  };
  // Passes the event to the job's answer, and adds the answer's output to `update`.
  static Status answer(Job& job, EngineThread::Event& event, Update& update);
  void forget(const Job& job);

  Hooks hooks_;
  Ticket next_ticket_;
  std::unordered_map<Ticket, std::shared_ptr<Job>> jobs_;
};

}  // namespace tessera
