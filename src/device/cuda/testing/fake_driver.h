// A CUDA driver in host memory, for tests on machines without a GPU. It is as asynchronous as a driver may be: a
// stream's work runs only when something waits for it, so that memory reused too early gives wrong results. It insists
// on a current context, and a call that may not be made while the thread captures makes the capture invalid, as in the
// real one.
//
//   FakeDriver fake;
//   fake.fail("cuMemAlloc", 2, CUDA_ERROR_OUT_OF_MEMORY);
//   auto device = CudaDevice::create({.driver = &fake.table()});
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/driver.h"

namespace tessera {

struct FakeDriverOptions {
  int version = CUDA_VERSION;
  int devices = 1;
  int compute_capability = 90;
  std::size_t memory_bytes = std::size_t{256} << 20;
  bool takes_rdma = true;              // cuMemCreate for GPUDirect RDMA
  bool takes_file_descriptors = true;  // cuMemCreate for handles to export
};

// One at a time: the functions of a driver have no object to belong to.
class FakeDriver {
 public:
  explicit FakeDriver(FakeDriverOptions options = {});
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  const Driver& table() const { return table_; }
  // The nth call of `function` from now on, counted from 1, does nothing but return `result`.
  void fail(const std::string& function, int nth, CUresult result);
  // Of all functions where none is named.
  int calls(const std::string& function = "") const;
  // Calls that fail() made fail.
  int faults() const;
  // Objects that were not released: memory, addresses, streams, events, graphs, contexts.
  int live_objects() const;

 private:
  friend struct FakeFunctions;
  struct State;

  std::unique_ptr<State> state_;
  Driver table_;
};

// The first device of the driver, which outlives it.
inline std::unique_ptr<CudaDevice> open_fake(const FakeDriver& fake) {
  return std::move(CudaDevice::create({.driver = &fake.table()})).value();
}

}  // namespace tessera
