// Machine code that is made at run time, as a function that can be launched.
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
  // The blocks may be placed before the kernels ahead have ended; the kernel waits for them itself
  // (ops/cuda/cuda_launch.cuh).
  bool early = false;
};

class CudaModule {
 public:
  // `code` is what NVRTC gave for the GPU's architecture, with a kernel `entry`. Refused while a stream records.
  // kInternal for code that the driver does not take. The device outlives the module.
  static Result<std::unique_ptr<CudaModule>> load(CudaDevice& device, std::string entry, const std::string& code);
  // Not while a stream works on it.
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  // The kernel takes one struct of 8-byte words, which is copied. Asynchronous; may be recorded.
  Status launch(CudaStream& stream, const CudaLaunchShape& shape, std::span<const std::uint64_t> arguments) const;

 private:
  CudaModule(CudaDevice& device, std::string entry) : device_(device), entry_(std::move(entry)) {}

  CudaDevice& device_;
  std::string entry_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace tessera
