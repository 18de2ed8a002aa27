// A fake CUDA driver in host memory, for tests on machines without a GPU. It is asynchronous like a real driver. A
// stream's work runs only when something waits for it, so memory that is reused too early gives wrong results. As in
// the real driver, calls need a current context, and a call that is not allowed during a capture invalidates the
// thread's capture.
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
  bool takes_rdma = true;              // whether cuMemCreate accepts GPUDirect RDMA
  bool takes_file_descriptors = true;  // whether cuMemCreate accepts handles for export
};

// A fake driver. Only one can exist at a time, because a driver's functions take no object.
class FakeDriver {
 public:
  explicit FakeDriver(FakeDriverOptions options = {});
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // The largest distance in bytes between rows of a copy. A real driver accepts 2³¹ - 1.
  static constexpr int kLargestPitch = 1 << 16;

  const Driver& table() const { return table_; }
  // Makes a later call of `function` do nothing and return `result`. `nth` counts calls from now on, starting at 1.
  void fail(const std::string& function, int nth, CUresult result);
  // Returns the number of calls of `function`. If `function` is empty, counts the calls of all functions.
  int calls(const std::string& function = "") const;
  // Returns the number of calls that failed because of fail().
  int faults() const;
  // Returns the number of objects that were not released. Objects are memory, addresses, streams, events, graphs and
  // contexts.
  int live_objects() const;

 private:
  friend struct FakeFunctions;
  struct State;

  std::unique_ptr<State> state_;
  Driver table_;
};

// Opens the first device of the driver. The driver must outlive the device.
inline std::unique_ptr<CudaDevice> open_fake(const FakeDriver& fake) {
  return std::move(CudaDevice::create({.driver = &fake.table()})).value();
}

}  // namespace tessera
