// Exchanges data between GPUs of several processes by NCCL. The collectives of a group that spans processes use one
// NCCL communicator of all its ranks. Values between two stages of a pipeline use a communicator of two ranks, the
// sender and the receiver. The first rank makes the communicator's id. It sends the id to the others over the
// connections between nodes, which also carry everything else that ranks tell each other.
//
//   const std::shared_ptr<NcclExchange> exchange = TRY(NcclExchange::of(communicator, {.gpu = uuid_of, …}));
//   TRY(exchange->all_reduce(x, stream));      // eagerly, or while the stream records
//
// All ranks get the same bits. NCCL adds in the tensor's type, in an order that it chooses by size and connections.
//
// How a group ends: every 50 ms a thread of each rank checks whether the group has ended (a node was lost, a rank
// failed). The thread also checks whether NCCL has lost a connection, and in this case ends the group. After the end of
// the group, the rank has one second to end by itself. If it does not, it hangs in a kernel or in an NCCL call. The
// thread waits at most one more second for an NCCL call to return. It then aborts NCCL's communicator. The abort ends
// kernels that wait for other GPUs; their results are incomplete. Readers of these results see that the group has
// ended.
//
// A rank that ends by itself does not destroy its NCCL communicator. Destroying it would make NCCL wait for the other
// processes of the machine, which end only later, when this process tells them. The communicator therefore exists, and
// keeps its memory, until the process ends.
//
// Threads: the rank's thread calls the collectives. This class does not call CUDA itself: streams are opaque handles,
// and the caller passes in the functions that need the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/nccl_library.h"

namespace tessera {

// One rank's part of the exchange. The Communicator must outlive the exchange. The exchange may be destroyed once the
// rank has no running launch and the graphs that recorded the exchange's collectives are gone.
class NcclExchange final : public DeviceExchange {
 public:
  struct Place {
    // Returns a name of the GPU, unique over all machines, of at most 40 characters. Called once.
    std::function<Result<std::string>()> gpu{};
    std::function<Status()> make_current{};     // makes the GPU current for the calling thread
    std::function<std::int64_t()> available{};  // the GPU's free memory in bytes
    std::string library = NcclLibrary::kFile;
  };
  // Returns the communicator's exchange. If there is none, makes it together with all other ranks, and blocks until
  // each of them has called of(), at most for the communicator's limit. Returns kInvalidArgument if two ranks are on
  // one GPU or load different versions of NCCL, kCancelled if a rank does not call or the group ends, and errors of
  // NcclLibrary.
  static Result<std::shared_ptr<NcclExchange>> of(Communicator& communicator, const Place& place);
  // Returns the exchange of a pipeline link between two processes: the link to the next stage, or the one from the
  // previous stage. The exchange has two ranks, and the sender is the first. If there is no exchange yet, makes it
  // together with the other rank. Returns the same errors as of().
  static Result<std::shared_ptr<NcclExchange>> link(Communicator& communicator, bool to_next, const Place& place);
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  const NcclLibrary& library() const;
  int ranks() const;
  // Returns the device memory that NCCL took when it made its communicator. This leaves out memory that NCCL takes
  // later, when the first call of a size connects GPUs.
  std::int64_t bytes() const override { return bytes_; }

  // The four functions below are asynchronous on `stream`, a cudaStream_t. Tensors are in the memory of the rank's GPU.
  // The first call of a size may connect GPUs, which takes a while and must not be recorded. The functions return
  // kCancelled once the group has ended.
  //
  // Replaces every rank's x by the sum of x over all ranks.
  Status all_reduce(const TensorView& x, void* stream) const;
  // Gathers the `bytes` bytes at every rank's `from` into `to` [ranks][bytes], in rank order.
  Status all_gather(DeviceAddress from, DeviceAddress to, std::size_t bytes, void* stream) const;
  // Adds row r of all ranks' x, and stores the sum in y of rank r. x is [ranks, y's elements].
  Status reduce_scatter(const TensorView& x, const TensorView& y, void* stream) const;
  // Sends x if this rank is the sender of the link. Receives x if this rank is the receiver.
  Status hand_on(const TensorView& x, void* stream) const;

 private:
  struct Shared;
  struct Meeting;
  NcclExchange() = default;
  static Result<std::shared_ptr<NcclExchange>> make(Communicator& communicator, std::weak_ptr<DeviceExchange>& kept,
                                                    const Meeting& meeting, const Place& place);
  Status open(Communicator& communicator, const Meeting& meeting, const Place& place);

  Communicator* communicator_ = nullptr;  // null until open() has given the communicator a flag of this object
  std::int64_t bytes_ = 0;
  std::shared_ptr<Shared> shared_;  // shared with the watching thread
};

}  // namespace tessera
