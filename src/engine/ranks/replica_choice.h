// Chooses which of several engines of one model gets a request: the one with the shortest expected wait. Pure
// bookkeeping.
//
//   wait(r) = prompt tokens that r still has to compute + tokens of this prompt that r's cache lacks
//             + kRunningTokens · requests of r that have not ended
//
// A cache's contents are estimated from the prompts that were sent to it, in blocks of kBlockTokens, as routers in
// front of servers do. A wrong estimate only costs time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/ticket.h"

namespace tessera {

class ReplicaChoice {
 public:
  static constexpr int kMostReplicas = 64;
  static constexpr std::int64_t kBlockTokens = 64;
  // The cost of a running request, in prompt tokens. On an H200 with Llama-3-8B, a decoding row adds 0.05 ms to each
  // step, a prompt token takes 0.025 ms, and a request still has about 100 steps to come: 100 · 0.05 / 0.025 = 200.
  static constexpr std::int64_t kRunningTokens = 200;

  // `cached_tokens` is the capacity of one replica's prefix cache.
  ReplicaChoice(int replicas, std::int64_t cached_tokens);

  // Chooses among the replicas that serve, and counts the request for the chosen one. `adapter` is the name of the
  // request's adapter, or empty if it has none. Prompts of different adapters share no cached prefixes. Returns 0 if no
  // replica serves.
  int choose(Ticket ticket, std::span<const TokenId> prompt, std::string_view adapter = {});
  // Records that the request's prompt is computed. This function and the next two ignore a ticket that is unknown or
  // has ended.
  void prompt_done(Ticket ticket);
  void ended(Ticket ticket);
  // Returns the request's replica, or -1 if there is none.
  int replica_of(Ticket ticket) const;
  // Marks a replica as failed: it gets no more requests.
  void leave_out(int replica);
  bool serves(int replica) const { return loads_[static_cast<std::size_t>(replica)].serves; }
  int serving() const;
  // Records that the replicas' prefix caches are empty.
  void forget_prefixes();

 private:
  struct Load {
    std::int64_t prompt_tokens = 0;  // prompt tokens that are still to be computed
    std::int64_t requests = 0;       // requests that have not ended
    bool serves = true;
  };
  struct Place {
    int replica = 0;
    std::int64_t prompt_tokens = 0;
  };
  // Returns, for each replica, how many blocks from the prompt's start that replica may have cached. Stores the hashes
  // of the prompt's blocks in `blocks`.
  std::vector<std::int64_t> known_blocks(std::span<const TokenId> prompt, std::string_view adapter,
                                         std::vector<std::uint64_t>& blocks) const;
  void remember(std::span<const std::uint64_t> blocks, int replica);

  std::vector<Load> loads_;
  std::unordered_map<Ticket, Place> places_;
  std::size_t most_blocks_;
  // Maps a block to the replicas that may have cached it, as a bit set. The key is the hash of the adapter and of all
  // tokens up to the block's end.
  std::unordered_map<std::uint64_t, std::uint64_t> owners_;
  std::deque<std::uint64_t> order_;  // keys of owners_, oldest first
};

}  // namespace tessera
