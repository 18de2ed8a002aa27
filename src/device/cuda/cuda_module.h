// Loads machine code that was compiled at run time, as a function that can be launched.
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
  // Lets the blocks start before earlier kernels have ended (programmatic dependent launch). The kernel itself must
  // then wait for these kernels (ops/cuda/cuda_launch.cuh).
  bool early = false;
};

class CudaModule {
 public:
  // Loads `code`, which NVRTC compiled for the GPU's architecture and which has a kernel `entry`. Returns an error
  // while a stream records. Returns kInternal if the driver rejects the code. The device must outlive the module.
  static Result<std::unique_ptr<CudaModule>> load(CudaDevice& device, std::string entry, const std::string& code);
  // Unloads the code. Precondition: no stream runs it any more.
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  // Launches the kernel. Its single argument is a struct of 8-byte words, which is copied. The launch is asynchronous
  // and may be recorded.
  Status launch(CudaStream& stream, const CudaLaunchShape& shape, std::span<const std::uint64_t> arguments) const;

 private:
  CudaModule(CudaDevice& device, std::string entry) : device_(device), entry_(std::move(entry)) {}

  CudaDevice& device_;
  std::string entry_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace tessera
