// The peers of an engine: the ranks that compute forwards with it. An engine uses its peers without knowing their kind.
//
//   alone     (this class)           one rank: there are no peers, so most functions do nothing
//   leader    (leader.h)             rank 0 of one model's ranks, which schedules; the others compute its forwards too
//   lockstep  (lockstep_peers.h)     one of the replicas that share a model's experts and make their forwards together
//
// Only the engine's thread may call a function, unless the function's comment says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/image/patches.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

class Peers {
 public:
  Peers() = default;
  virtual ~Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Returns ok, or an error if no further forward can succeed, because a node is lost.
  virtual Status health() const { return ok_status(); }
  // Sets a function that is called on another thread when a node is lost; null removes it. Any thread may call this.
  virtual void when_lost(const std::function<void()>& /*call*/) {}

  // Returns the number of ranks that run each forward together.
  virtual int ranks() const { return 1; }
  // Returns the memory reports of the other ranks. Waits for their current work.
  virtual Result<std::vector<MemoryReport>> memory() { return std::vector<MemoryReport>(); }

  // Loads the weights of all ranks. `own` loads the weights of this engine's rank.
  virtual Status load_weights(const EnginePlan& /*plan*/, const std::function<Status()>& own) { return own(); }
  // Waits until all peers that serve requests of their own have made this call, because loading times differ.
  virtual Status meet() { return ok_status(); }
  // If the peers dispatch on their own, checks that all of them have captured the same sizes.
  virtual Status compare_sizes(const DispatchTable& /*captured*/) { return ok_status(); }

  // Returns whether peers wait for this engine to make a forward with them.
  virtual bool awaiting() const { return false; }
  // Sets a function that is called on another thread when peers begin to wait; null removes it. Any thread may call
  // this.
  virtual void when_awaited(const std::function<void()>& /*call*/) {}
  // Tells the peers that this engine makes its next forward.
  virtual void begin_forward() {}
  // Makes a forward without requests if peers await one.
  virtual Status run_idle_forward(ModelRunner& /*runner*/) { return ok_status(); }
  // Encodes images on all ranks that compute this engine's forwards. `own` encodes them on this engine's rank.
  virtual Status encode_images(std::span<const Patches* const> /*images*/, std::span<const std::int64_t> /*first_rows*/,
                               const std::function<Status()>& own) {
    return own();
  }
  // Call it after a forward could not be submitted. Returns whether the forwards in flight have lost values that ranks
  // exchange.
  virtual bool lose_exchanges() const { return false; }

  // Ends this engine's part in the peers' forwards: the peers stop waiting for this engine, and their next steps fail.
  // Returns once no kernel here accesses peers' memory and no kernel of a peer accesses this engine's memory.
  virtual void leave(ModelRunner& /*runner*/) {}
  // Does the same as leave() for an engine that has failed, but does not wait.
  virtual void fail(const Status& /*why*/) {}
};

// Starts or joins the peers that the options ask for. Waits for other nodes, and lowers the plan's sizes and pages to
// what fits all ranks. The runner made from the plan works with the peers, which must outlive it.
Result<std::unique_ptr<Peers>> start_peers(const EngineOptions& options, Device& device, EnginePlan& plan);

}  // namespace tessera
