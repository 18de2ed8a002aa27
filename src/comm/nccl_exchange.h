// Exchanges data between GPUs of several processes by NCCL. The collectives of a group with ranks in several processes
// use one communicator of all ranks; values between two stages of a pipeline use a communicator of the two ranks on
// either side. The first rank makes the communicator's id. It sends the id to the others over the nodes' connections,
// which carry everything that ranks tell each other.
//
//   const std::shared_ptr<NcclExchange> exchange = TRY(NcclExchange::of(communicator, {.gpu = uuid_of, …}));
//   TRY(exchange->all_reduce(x, stream));      // eagerly, or while the stream records
//
// All ranks get the same bits. NCCL adds up in the tensor's type, in an order that it chooses by size and connections.
//
// End of a group: a thread of each rank checks every 50 ms whether the group has ended (a node was lost, a rank failed)
// or NCCL has lost a connection, which ends the group. A rank that does not end by itself within a second hangs in a
// kernel or in an NCCL call; an NCCL call gets one second more. Then the communicator is aborted: kernels that wait for
// other GPUs end with incomplete results, and the users of these results see that the group has ended.
//
// A rank that ends by itself leaves its communicator to the end of the process. Destroying it would make NCCL wait for
// the machine's other processes, which end only later, when this process tells them. Until then NCCL keeps the
// communicator's memory.
//
// Threads: the rank's thread calls the collectives. This class does not use CUDA itself: streams are opaque handles,
// and functions passed in by the caller know the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/nccl_library.h"

namespace tessera {

// One rank's part of the exchange. The communicator outlives it. It may be destroyed when the rank has no launch under
// way and the graphs that recorded its collectives are gone.
class NcclExchange final : public DeviceExchange {
 public:
  struct Place {
    // Returns a name of the GPU that is unique among all machines, of at most 40 characters. Called once.
    std::function<Result<std::string>()> gpu{};
    std::function<Status()> make_current{};     // makes the GPU current for the calling thread
    std::function<std::int64_t()> available{};  // the GPU's free memory in bytes
    std::string library = NcclLibrary::kFile;
  };
  // Returns the communicator's exchange. If there is none, makes it together with all other ranks: blocks until each
  // has called, at most for the communicator's limit. kInvalidArgument if two ranks are on one GPU or load different
  // versions of NCCL; kCancelled if a rank does not come or the group ends; other errors as NcclLibrary's.
  static Result<std::shared_ptr<NcclExchange>> of(Communicator& communicator, const Place& place);
  // Returns the exchange of a pipeline link to the next stage, or from the previous one, if the neighbour's rank is in
  // another process. The link has two ranks; the sender is the first. Makes the exchange together with the other rank.
  // Errors as of().
  static Result<std::shared_ptr<NcclExchange>> link(Communicator& communicator, bool to_next, const Place& place);
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  const NcclLibrary& library() const;
  int ranks() const;
  // Returns the device memory that NCCL took when the communicator was made. Memory that NCCL takes later, when the
  // first call of a size connects GPUs, is not included.
  std::int64_t bytes() const override { return bytes_; }

  // The four functions below are asynchronous on `stream`, a cudaStream_t. The memory belongs to the rank's GPU. The
  // first call of a size may connect GPUs, which takes a while and must not be recorded. kCancelled once the group has
  // ended.
  //
  // Computes x = Σ over ranks, in place.
  Status all_reduce(const TensorView& x, void* stream) const;
  // Gathers `bytes` at `from` of every rank, in rank order, to `to` [ranks][bytes].
  Status all_gather(DeviceAddress from, DeviceAddress to, std::size_t bytes, void* stream) const;
  // Computes y = Σ over ranks of this rank's row of x, where x is [ranks, y's elements].
  Status reduce_scatter(const TensorView& x, const TensorView& y, void* stream) const;
  // Works on a link: sends x to the other side on the sender, receives x on the receiver.
  Status hand_on(const TensorView& x, void* stream) const;

 private:
  struct Shared;
  struct Meeting;
  NcclExchange() = default;
  static Result<std::shared_ptr<NcclExchange>> make(Communicator& communicator, std::weak_ptr<DeviceExchange>& kept,
                                                    const Meeting& meeting, const Place& place);
  Status open(Communicator& communicator, const Meeting& meeting, const Place& place);

  Communicator* communicator_ = nullptr;  // null until it has the flag to raise
  std::int64_t bytes_ = 0;
  std::shared_ptr<Shared> shared_;  // shared with the thread that watches
};

}  // namespace tessera
