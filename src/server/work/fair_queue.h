// Which of the jobs that wait for one of a few threads comes next, fair by client. Pure bookkeeping: it knows jobs by
// number, runs nothing and has no threads of its own.
//
//   FairQueue queue({.threads = 3, .most_waiting = 1024});
//   if (const auto refused = queue.add(job, client)) …;   // answer 503 for that job
//   while (const auto job = queue.next()) …;              // each of them takes a thread
//   queue.done(job);
//
// - The next job is the oldest one of the client that runs the fewest. Among equals, clients take turns.
// - A client that runs a job gets no further thread while only one is free. Another client's first job therefore
//   waits for none of it where there are two threads or more.
// - Where the queue is full, the newest job of the client that has the most in it goes, so that no client's jobs keep
//   another's out.
//
// Cost: linear in the number of clients that have jobs here.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tessera {

class FairQueue {
 public:
  using Job = std::uint64_t;
  struct Limits {
    std::size_t threads = 1;       // jobs that run at once
    std::size_t most_waiting = 1;  // beside them, at least 1
  };

  explicit FairQueue(Limits limits) : limits_(limits) {}

  // Appends the job, whose number is new. Returns the job that has to go where there is no room: this one, or another
  // one that waits, which is then forgotten.
  std::optional<Job> add(Job job, std::string_view client);
  // The job that runs from now on; none where all wait for a thread, or where there is no job.
  std::optional<Job> next();
  // Forgets a job that waits. False: it runs, or is not known.
  bool remove(Job job);
  // Precondition: the job runs.
  void done(Job job);

  std::size_t waiting() const { return waiting_; }
  std::size_t running() const { return running_; }

 private:
  struct Client {
    std::string name;
    std::deque<Job> waiting;
    std::size_t running = 0;
  };
  using Clients = std::list<Client>;

  Clients::iterator client_of(std::string_view name);
  Clients::iterator greediest();
  bool may_run(const Client& client) const;
  void forget(Job job, Clients::iterator client);

  Limits limits_;
  Clients clients_;  // that have jobs; the one whose last turn is longest ago first
  std::unordered_map<Job, Clients::iterator> jobs_;
  std::size_t waiting_ = 0;
  std::size_t running_ = 0;
};

}  // namespace tessera
