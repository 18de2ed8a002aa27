#include "tessera/server/work/fair_queue.h"

#include <algorithm>

namespace tessera {

FairQueue::Clients::iterator FairQueue::client_of(std::string_view name) {
  const auto found = std::find_if(clients_.begin(), clients_.end(), [&](const Client& c) { return c.name == name; });
  if (found != clients_.end()) return found;
  return clients_.insert(clients_.end(), Client{.name = std::string(name), .waiting = {}});
}

FairQueue::Clients::iterator FairQueue::greediest() {
  return std::max_element(clients_.begin(), clients_.end(),
                          [](const Client& a, const Client& b) { return a.waiting.size() < b.waiting.size(); });
}

bool FairQueue::may_run(const Client& client) const {
  const std::size_t free = limits_.threads - running_;
  return free > 1 || client.running == 0;
}

void FairQueue::forget(Job job, Clients::iterator client) {
  jobs_.erase(job);
  if (client->waiting.empty() && client->running == 0) clients_.erase(client);
}

std::optional<FairQueue::Job> FairQueue::add(Job job, std::string_view client) {
  const Clients::iterator its = client_of(client);
  its->waiting.push_back(job);
  jobs_.emplace(job, its);
  ++waiting_;
  if (waiting_ <= limits_.most_waiting) return std::nullopt;
  const Clients::iterator greedy = greediest();
  const Job refused = greedy->waiting.back();
  remove(refused);
  return refused;
}

std::optional<FairQueue::Job> FairQueue::next() {
  if (running_ == limits_.threads) return std::nullopt;
  Clients::iterator best = clients_.end();
  for (Clients::iterator at = clients_.begin(); at != clients_.end(); ++at) {
    if (at->waiting.empty() || !may_run(*at)) continue;
    if (best == clients_.end() || at->running < best->running) best = at;
  }
  if (best == clients_.end()) return std::nullopt;
  const Job job = best->waiting.front();
  best->waiting.pop_front();
  ++best->running;
  --waiting_;
  ++running_;
  clients_.splice(clients_.end(), clients_, best);
  return job;
}

bool FairQueue::remove(Job job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  const Clients::iterator client = found->second;
  const auto at = std::find(client->waiting.begin(), client->waiting.end(), job);
  if (at == client->waiting.end()) return false;
  client->waiting.erase(at);
  --waiting_;
  forget(job, client);
  return true;
}

void FairQueue::done(Job job) {
  const Clients::iterator client = jobs_.find(job)->second;
  --client->running;
  --running_;
  forget(job, client);
}

}  // namespace tessera
