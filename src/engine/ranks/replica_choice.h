// Which of several engines of one model a request goes to: the one on which it waits least. Pure bookkeeping.
//
//   wait(r) = prompt tokens that r has still to compute + those of this prompt that r's cache lacks
//             + kRunningTokens · requests that r runs
//
// What a cache has is guessed from the prompts that went there, in blocks of kBlockTokens, as routers in front of
// servers do; a wrong guess costs time alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/ticket.h"

namespace tessera {

class ReplicaChoice {
 public:
  static constexpr int kMostReplicas = 64;
  static constexpr std::int64_t kBlockTokens = 64;
  // What a running request is worth in prompt tokens. A row adds 0.05 ms to each step of Llama-3-8B on an H200, a
  // prompt's token takes 0.025 ms there, and a hundred steps are to come.
  static constexpr std::int64_t kRunningTokens = 200;

  // `cached_tokens`: what one replica's prefix cache holds.
  ReplicaChoice(int replicas, std::int64_t cached_tokens);

  // Chooses among the replicas that serve, and counts the request there. With none: 0.
  int choose(Ticket ticket, std::span<const TokenId> prompt);
  // Its prompt is computed. Nothing where the ticket has ended or is unknown, as in the next two.
  void prompt_done(Ticket ticket);
  void ended(Ticket ticket);
  // Where it is; -1: nowhere.
  int replica_of(Ticket ticket) const;
  // It has failed and gets no more requests.
  void leave_out(int replica);
  bool serves(int replica) const { return loads_[static_cast<std::size_t>(replica)].serves; }
  int serving() const;
  // Its cache is empty.
  void forget_prefixes();

 private:
  struct Load {
    std::int64_t prompt_tokens = 0;  // to be computed
    std::int64_t requests = 0;       // that have not ended
    bool serves = true;
  };
  struct Place {
    int replica = 0;
    std::int64_t prompt_tokens = 0;
  };
  // For each replica, how many blocks from the prompt's start it may have; `blocks` gets their hashes.
  std::vector<std::int64_t> known_blocks(std::span<const TokenId> prompt, std::vector<std::uint64_t>& blocks) const;
  void remember(std::span<const std::uint64_t> blocks, int replica);

  std::vector<Load> loads_;
  std::unordered_map<Ticket, Place> places_;
  std::size_t most_blocks_;
  std::unordered_map<std::uint64_t, std::uint64_t> owners_;  // hash of all tokens up to a block's end → replicas' bits
  std::deque<std::uint64_t> order_;                          // of owners_, oldest first
};

}  // namespace tessera
