#include "tessera/comm/testing/fake_nccl.h"

#include <fmt/format.h>

#include <memory>

#include "tessera/comm/nccl_library.h"

using tessera::NcclId;
using tessera::testing::FakeNccl;

namespace {

struct Comm {
  int rank;
};

// Returns all communicators. A communicator that is never aborted exists until the process ends.
std::vector<std::unique_ptr<Comm>>& comms() {
  static std::vector<std::unique_ptr<Comm>> all;
  return all;
}

FakeNccl& fake() {
  static FakeNccl one;
  return one;
}

int record(std::string call) {
  const std::lock_guard lock(fake().mutex);
  fake().calls.push_back(std::move(call));
  fake().moved.notify_all();
  return tessera::kNcclSuccess;
}

int value_or_zero(const std::map<int, int>& of_rank, int rank) {
  const auto found = of_rank.find(rank);
  return found == of_rank.end() ? 0 : found->second;
}

}  // namespace

extern "C" {

FakeNccl& fake_nccl() { return fake(); }

int ncclGetVersion(int* version) {
  const std::lock_guard lock(fake().mutex);
  *version = fake().version;
  return tessera::kNcclSuccess;
}
const char* ncclGetErrorString(int result) { return result == 6 ? "remote process exited" : "another error"; }
const char* ncclGetLastError(void*) { return "socket closed"; }
int ncclGetUniqueId(NcclId* id) {
  const std::lock_guard lock(fake().mutex);
  *id = {};
  id->bytes[127] = static_cast<char>(++fake().ids);  // the last byte, so that a test notices a shortened id
  return tessera::kNcclSuccess;
}
int ncclCommInitRank(void** comm, int ranks, NcclId id, int rank) {
  record(fmt::format("init {} of {} id {}", rank, ranks, static_cast<int>(id.bytes[127])));
  std::unique_lock lock(fake().mutex);
  fake().moved.wait(lock, [] { return !fake().init_hangs; });
  const int result = value_or_zero(fake().init_errors, rank);
  if (result == tessera::kNcclSuccess) *comm = comms().emplace_back(std::make_unique<Comm>(Comm{rank})).get();
  return result;
}
int ncclCommGetAsyncError(void* comm, int* result) {
  const std::lock_guard lock(fake().mutex);
  *result = value_or_zero(fake().async_errors, static_cast<Comm*>(comm)->rank);
  return tessera::kNcclSuccess;
}
int ncclCommAbort(void* comm) {
  const int rank = static_cast<Comm*>(comm)->rank;
  {
    const std::lock_guard lock(fake().mutex);
    fake().reduce_hangs.erase(rank);
  }
  return record(fmt::format("abort {}", rank));
}
int ncclAllReduce(const void*, void*, std::size_t count, int type, int, void* comm, void*) {
  const int rank = static_cast<Comm*>(comm)->rank;
  record(fmt::format("all_reduce {}: {} of type {}", rank, count, type));
  std::unique_lock lock(fake().mutex);
  fake().moved.wait(lock, [rank] { return !fake().reduce_hangs.contains(rank); });
  return tessera::kNcclSuccess;
}
int ncclSend(const void*, std::size_t count, int type, int peer, void* comm, void*) {
  return record(fmt::format("send {} to {}: {} of type {}", static_cast<Comm*>(comm)->rank, peer, count, type));
}
int ncclRecv(void*, std::size_t count, int type, int peer, void* comm, void*) {
  return record(fmt::format("receive {} from {}: {} of type {}", static_cast<Comm*>(comm)->rank, peer, count, type));
}
#ifndef FAKE_NCCL_WITHOUT_ALL_GATHER
int ncclAllGather(const void*, void*, std::size_t count, int type, void* comm, void*) {
  return record(fmt::format("all_gather {}: {} of type {}", static_cast<Comm*>(comm)->rank, count, type));
}
#endif
int ncclReduceScatter(const void*, void*, std::size_t count, int type, int, void* comm, void*) {
  return record(fmt::format("reduce_scatter {}: {} of type {}", static_cast<Comm*>(comm)->rank, count, type));
}

}  // extern "C"
