// What GPUs of several processes exchange: the collectives of a group whose ranks are there, by one NCCL communicator
// of all ranks, and values between two stages of a pipeline, by one of the two ranks on either side. Its id is the
// first one's and goes to the others over the connections of the nodes, as all that they tell each other.
//
//   const std::shared_ptr<NcclExchange> exchange = TRY(NcclExchange::of(communicator, {.gpu = uuid_of, …}));
//   TRY(exchange->all_reduce(x, stream));      // eagerly, or while the stream records
//
// All ranks get the same bits. NCCL adds up in the tensor's type, in an order that it chooses by size and connections.
//
// A group that ends. A thread of each rank looks every 50 ms whether the group has ended (a node was lost, a rank
// failed), or NCCL has lost a connection, which ends the group. A rank that does not end itself within a second hangs
// in a kernel, or in a call of NCCL's, which gets one second more: the communicator is aborted, kernels that wait for
// other GPUs end, with whatever they have, and whoever counts on their results sees that the group has ended.
//
// A rank that ends by itself leaves its communicator to the end of the process: NCCL would wait for the other processes
// of the machine, which end later, by what this one tells them. Its memory is NCCL's until then.
//
// Threads: collectives belong to the rank's. Nothing here is CUDA: streams are handles, and the GPU a function's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/ops/comm/collective.h"
#include "tessera/ops/comm/nccl_library.h"

namespace tessera {

// One rank's part; the communicator outlives it. When it is destroyed no rank has a launch under way, and the graphs
// that recorded its collectives are gone.
class NcclExchange {
 public:
  struct Place {
    // What no other GPU of any machine is called, in 40 characters or fewer. Asked for once.
    std::function<Result<std::string>()> gpu{};
    std::function<Status()> make_current{};  // makes the GPU the calling thread's
    std::string library = NcclLibrary::kFile;
  };
  // That of the communicator; makes it where there is none, together with all other ranks: blocks until each has
  // called, and for the communicator's limit at most. kInvalidArgument where two ranks are on one GPU or load other
  // versions of NCCL; kCancelled where a rank does not come or the group ends; errors as NcclLibrary's.
  static Result<std::shared_ptr<NcclExchange>> of(Communicator& communicator, const Place& place);
  // The same towards the next stage, or from the previous one, whose rank is in another process: of two, the sender
  // being the first. Makes it together with that rank.
  static Result<std::shared_ptr<NcclExchange>> link(Communicator& communicator, bool to_next, const Place& place);
  ~NcclExchange();
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  const NcclLibrary& library() const;
  int ranks() const;

  // Asynchronous on `stream`, a cudaStream_t; memory of the rank's GPU. The first call of a size may connect GPUs,
  // which takes a while and must not be recorded. kCancelled once the group has ended.
  //
  // In place.
  Status all_reduce(const TensorView& x, void* stream) const;
  // The ranks' `bytes` at `from`, one behind another, to `to` [ranks][bytes].
  Status all_gather(DeviceAddress from, DeviceAddress to, std::size_t bytes, void* stream) const;
  // x [ranks, y's elements] → y = Σ over ranks of this rank's row of x.
  Status reduce_scatter(const TensorView& x, const TensorView& y, void* stream) const;
  // Of a link: x to the other side, or from it; which of them, follows from who this is.
  Status hand_on(const TensorView& x, void* stream) const;

 private:
  struct Shared;
  struct Meeting;
  NcclExchange() = default;
  static Result<std::shared_ptr<NcclExchange>> make(Communicator& communicator, std::weak_ptr<void>& kept,
                                                    const Meeting& meeting, const Place& place);
  Status open(Communicator& communicator, const Meeting& meeting, const Place& place);

  Communicator* communicator_ = nullptr;  // once it raises the flag
  std::shared_ptr<Shared> shared_;        // with the thread that watches
};

}  // namespace tessera
