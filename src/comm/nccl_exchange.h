// Exchanges data between GPUs of several processes through NCCL. The collectives of a group that spans processes use
// one NCCL communicator of all its ranks. Values between two stages of a pipeline use a communicator of two ranks, the
// sender and the receiver. The first rank makes the communicator's id, and sends it to the other ranks over the
// connections between nodes. All other messages between ranks also travel over these connections.
//
//   const std::shared_ptr<NcclExchange> exchange = TRY(NcclExchange::of(communicator, {.gpu = uuid_of, …}));
//   TRY(exchange->all_reduce(x, stream));      // eagerly, or while the stream records
//
// All ranks get the same bits. NCCL adds in the tensor's type, in an order that it chooses by size and connections.
//
// The end of a group: a group ends when a node is lost or a rank fails. Every 50 ms, a thread of each rank checks
// whether the group has ended. The thread also checks whether NCCL has lost a connection, and ends the group if so.
// After the end of the group, the rank has one second to end by itself. A rank that has not ended by then must be
// hanging in a kernel or in an NCCL call. If it is in an NCCL call, the thread waits at most one more second for the
// call to return. Then the thread aborts NCCL's communicator. The abort ends kernels that wait for other GPUs. The
// results of these kernels are incomplete, so whoever reads the results must check that the group has not ended.
//
// A rank that ends by itself does not destroy its NCCL communicator. If it did, NCCL would wait for the other processes
// of the machine, which end only later, when this process tells them to. The communicator therefore exists, and keeps
// its memory, until the process ends.
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

// One rank's part of the exchange. The Communicator must outlive the exchange. The exchange may be destroyed once no
// launch of the rank is running and the graphs that recorded its collectives are destroyed.
class NcclExchange final : public DeviceExchange {
 public:
  struct Place {
    // Returns the GPU's name, which is unique over all machines and has at most 40 characters. open() calls gpu() once.
    std::function<Result<std::string>()> gpu{};
    std::function<Status()> make_current{};     // makes the GPU current for the calling thread
    std::function<std::int64_t()> available{};  // the GPU's free memory in bytes
    std::string library = NcclLibrary::kFile;
  };
  // Returns the communicator's exchange. If there is none, makes it together with all other ranks. The call then blocks
  // until each of these ranks has called of(), but not longer than the communicator's limit. Returns kInvalidArgument
  // if two ranks are on the same GPU or load different versions of NCCL. Returns kCancelled if a rank does not call
  // of() or the group ends. Also returns errors of NcclLibrary.
  static Result<std::shared_ptr<NcclExchange>> of(Communicator& communicator, const Place& place);
  // Returns the exchange of a pipeline link between two processes. If `to_next`, it is the link to the next stage,
  // otherwise the link from the previous stage. The exchange has two ranks, and the sender is the first. If there is no
  // exchange yet, makes it together with the other rank. Returns the same errors as of().
  static Result<std::shared_ptr<NcclExchange>> link(Communicator& communicator, bool to_next, const Place& place);
  ~NcclExchange() override;
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  const NcclLibrary& library() const;
  int ranks() const;
  // Returns the number of bytes of device memory that NCCL took when it made its communicator. Memory that NCCL takes
  // later, when the first call with a tensor size connects GPUs, is not included.
  std::int64_t bytes() const override { return bytes_; }

  // The four functions below are asynchronous on `stream`, a cudaStream_t. Tensors are in the memory of the rank's GPU.
  // The first call with a tensor size may connect GPUs. This takes a while, and such a call must not be recorded. The
  // functions return kCancelled once the group has ended.
  //
  // Replaces every rank's x with the sum of x over all ranks.
  Status all_reduce(const TensorView& x, void* stream) const;
  // Gathers the `bytes` bytes at every rank's `from` into `to` [ranks][bytes], in rank order.
  Status all_gather(DeviceAddress from, DeviceAddress to, std::size_t bytes, void* stream) const;
  // Adds row r of x over all ranks, and stores the sum in y of rank r. The shape of x is [ranks, number of elements of
  // y].
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
