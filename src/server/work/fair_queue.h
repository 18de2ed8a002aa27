// Jobs of several clients wait for one of a few threads. The queue chooses the next job, so that the clients share the
// threads fairly. It identifies jobs by number and only decides their order. It runs no jobs itself and has no threads.
//
//   FairQueue queue({.threads = 3, .most_waiting = 1024});
//   if (const auto refused = queue.add(job, client)) …;   // answer 503 for that job
//   while (const auto job = queue.next()) …;              // run each job on a thread of its own
//   queue.done(job);
//
// - The next job is the oldest waiting job of the client that runs the fewest jobs. If several clients run equally many
//   jobs, these clients take turns.
// - The last free thread is only for a client that runs no job. If there are at least two threads, one client can
//   therefore never occupy all of them.
// - If the queue is full, the newest job of the client with the most waiting jobs is dropped. One client's jobs can
//   therefore not keep out another client's jobs.
//
// Cost: linear in the number of clients that have jobs here. Threads: one thread at a time may use an object.
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
    std::size_t threads = 1;       // maximum number of jobs that run at once
    std::size_t most_waiting = 1;  // maximum number of waiting jobs; at least 1
  };

  explicit FairQueue(Limits limits) : limits_(limits) {}

  // Appends the job, whose number must be new. If the queue is full, drops a job and returns it: this job or another
  // waiting job. The queue forgets the dropped job.
  std::optional<Job> add(Job job, std::string_view client);
  // Counts the next job as running and returns it. Returns nothing if no job waits, or if no client with a waiting job
  // may take a thread.
  std::optional<Job> next();
  // Forgets a waiting job. Returns false if the job runs or is unknown.
  bool remove(Job job);
  // Ends a running job. Precondition: the job runs.
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
  Clients clients_;  // clients that have jobs; the client that was served longest ago comes first
  std::unordered_map<Job, Clients::iterator> jobs_;
  std::size_t waiting_ = 0;
  std::size_t running_ = 0;
};

}  // namespace tessera
