// Loads NCCL, NVIDIA's library of collectives between GPUs of several processes, at run time. The header of NCCL is not
// needed, because the C functions below have not changed since NCCL 2.13.
//
//   const std::shared_ptr<const NcclLibrary> nccl = TRY(NcclLibrary::open());
//   void* comm = nullptr;
//   TRY(nccl->check(nccl->call().init_rank(&comm, ranks, id, rank), "ncclCommInitRank"));
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// The id that the ranks of a communicator share. One rank makes it.
struct NcclId {
  char bytes[128] = {};
};

// Values of ncclResult_t.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
// Values of ncclDataType_t.
enum class NcclType : int { kUInt8 = 1, kFloat16 = 6, kFloat32 = 7, kBFloat16 = 9 };
// Value of ncclRedOp_t for a sum.
inline constexpr int kNcclSum = 0;

// Functions of nccl.h. Each int result is an ncclResult_t, each `comm` is an ncclComm_t, and each `stream` is a
// cudaStream_t. Counts are in elements. An all-gather and a reduce-scatter count the elements of one rank.
struct NcclFunctions {
  int (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  const char* (*get_last_error)(void* comm) = nullptr;
  int (*get_unique_id)(NcclId* id) = nullptr;
  int (*init_rank)(void** comm, int ranks, NcclId id, int rank) = nullptr;
  int (*get_async_error)(void* comm, int* result) = nullptr;
  int (*abort)(void* comm) = nullptr;
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int op, void* comm,
                    void* stream) = nullptr;
  int (*send)(const void* from, std::size_t count, int type, int peer, void* comm, void* stream) = nullptr;
  int (*receive)(void* to, std::size_t count, int type, int peer, void* comm, void* stream) = nullptr;
  int (*all_gather)(const void* from, void* to, std::size_t count, int type, void* comm, void* stream) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, std::size_t count, int type, int op, void* comm,
                        void* stream) = nullptr;
};

// The loaded library. It is immutable. Calls on the same communicator must not overlap, except for an abort, which ends
// a call that hangs.
class NcclLibrary {
 public:
  static constexpr const char* kFile = "libnccl.so.2";
  static constexpr int kOldest = 21600;  // 2.16.0, the first version for CUDA 12

  // Loads `file` by dlopen(). The library stays loaded. Returns kNotFound if the file cannot be loaded. The error names
  // the file and says where to get NCCL. Returns kUnimplemented if the library is too old or lacks a function.
  static Result<std::shared_ptr<const NcclLibrary>> open(const std::string& file = kFile);

  const NcclFunctions& call() const { return call_; }
  int version() const { return version_; }
  std::string version_text() const { return version_text(version_); }  // for example "2.28.9"
  static std::string version_text(int version);

  // Converts the result of an NCCL function to a Status with NCCL's message. Returns kInternal for wrong arguments.
  // Returns kDeviceLost for all other errors, because ranks that failed in a collective cannot start again.
  Status check(int result, std::string_view function) const;

 private:
  NcclLibrary() = default;

  NcclFunctions call_;
  int version_ = 0;
};

}  // namespace tessera
