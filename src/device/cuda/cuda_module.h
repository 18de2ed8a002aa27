// Machine code that is compiled at run time, as a function that can be launched.
//
//   std::unique_ptr<CudaModule> module = TRY(CudaModule::load(device, "fused_rows", code));
//   TRY(module->launch(stream, {.blocks = 8, .threads = 128}, arguments));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"

namespace tessera {

struct CudaLaunchShape {
  std::int64_t blocks = 0;
  std::int64_t threads = 0;
  // The blocks may start before earlier kernels have ended; the kernel itself waits for these
  // (ops/cuda/cuda_launch.cuh).
  bool early = false;
};

class CudaModule {
 public:
  // Loads `code`, which NVRTC made for the GPU's architecture, with a kernel `entry`. Refused while a stream records.
  // kInternal if the driver rejects the code. The device outlives the module.
  static Result<std::unique_ptr<CudaModule>> load(CudaDevice& device, std::string entry, const std::string& code);
  // Unloads the code. Precondition: no stream still runs it.
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  // Launches the kernel. It takes one struct of 8-byte words, which is copied. Asynchronous; may be recorded.
  Status launch(CudaStream& stream, const CudaLaunchShape& shape, std::span<const std::uint64_t> arguments) const;

 private:
  CudaModule(CudaDevice& device, std::string entry) : device_(device), entry_(std::move(entry)) {}

  CudaDevice& device_;
  std::string entry_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace tessera
