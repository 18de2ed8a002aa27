// Runs the jobs of HTTP requests (api_job.h). It submits a job's requests to the engine, and turns the engine's events
// into the HTTP answer until this answer ends.
//
// Threads: used on the I/O thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tessera/engine/engine_thread.h"
#include "tessera/server/api_job.h"
#include "tessera/server/http/call.h"

namespace tessera {

class LiveJobs {
 public:
  struct Hooks {
    std::function<void(Ticket, Request)> submit;
    std::function<void(Ticket)> cancel;
    std::function<void(Ticket)> abort;  // like cancel, but the request gets its last event
    // Calls `task` on the I/O thread after `seconds`.
    std::function<void(double seconds, std::function<void()> task)> after;
    // Calls `build` on another thread to make a part of the call's body. Then calls `then` with the part on the I/O
    // thread. If `build` fails, fails the call instead.
    std::function<void(const Call& call, std::function<std::string()> build, std::function<void(std::string)> then)>
        build_elsewhere;
    // A stream that sent nothing for this many seconds sends Answer::keep_alive() if Answer::keeps_alive() is true.
    double silent_s = 15;
  };

  // `metrics` outlives the object.
  LiveJobs(Hooks hooks, ServerMetrics& metrics) : hooks_(std::move(hooks)), metrics_(metrics) {}
  ~LiveJobs();

  // Submits the job's requests. The requests are cancelled if the client leaves, unless the job has a function
  // ApiJob::deliver. A job without requests is answered at once.
  void start(Call call, ApiJob job);
  // Takes the events of one or more steps, in order. Events of jobs that have ended are dropped.
  void dispatch(std::span<EngineThread::Event> events);
  // If the job with this id has a function ApiJob::deliver, cancels the job's requests and passes Answer::cancelled()
  // to this function.
  void cancel(std::string_view id);
  // Ends the requests that have this id or belong to the answer with this id. If `id` is empty, ends all requests. The
  // answers to the ended requests have the results so far. Returns the number of ended requests.
  std::size_t abort(std::string_view id);
  // Ends every job with the error and cancels its requests. A stream gets the error as an event.
  void fail_all(const ApiError& error);

 private:
  using Clock = Call::Clock;
  struct Job;
  struct LargeParts;
  struct Place {
    std::shared_ptr<Job> job;
    std::size_t index = 0;
  };
  void dispatch(EngineThread::Event& event, const Place& place, Clock::time_point now);
  void observe(Job& job, std::size_t index, const EngineThread::Event& event, Clock::time_point now) const;
  void send(Job& job, std::string_view data, Clock::time_point now) const;
  // Checks after `seconds` seconds whether the job's stream was silent, and repeats the check until the job's end.
  void watch(const std::shared_ptr<Job>& job, double seconds) const;
  void end(const std::shared_ptr<Job>& job, Clock::time_point now);
  // Builds the next part of a large body, and sends it once the part before it was sent.
  void build_part(const std::shared_ptr<Job>& job, const std::shared_ptr<LargeParts>& parts) const;
  void send_part(const std::shared_ptr<Job>& job, const std::shared_ptr<LargeParts>& parts,
                 const std::string& part) const;
  void fail(Job& job, const ApiError& error);
  // Forgets the job's tickets and cancels its running requests.
  void drop(Job& job);

  Hooks hooks_;
  ServerMetrics& metrics_;
  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, Place> places_;
  std::string stream_;  // the bytes that one event sends; a member so that its memory is reused
};

}  // namespace tessera
