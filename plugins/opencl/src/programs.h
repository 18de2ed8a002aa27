// Builds the programs of a device from the kernels' sources, on first use and once for each pair of storage types.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "cl.h"

namespace opencl {

// A file of kernels/. Each file is built together with storage.cl; kSample and kTokens are also built with order.cl.
enum class Source { kRows, kRope, kLinear, kAttention, kSample, kTokens };

// Types of activations and of the KV cache: TESSERA_PLUGIN_F32, _F16 or _BF16.
struct StorageTypes {
  std::int32_t x = TESSERA_PLUGIN_F32;
  std::int32_t y = TESSERA_PLUGIN_F32;
};

class Programs {
 public:
  Programs(cl_context context, cl_device_id device) : context_(context), device_(device) {}

  // Creates a kernel object that belongs to the caller. Returns UNIMPLEMENTED for types that StorageTypes does not
  // list. Thread-safe; the first call for a source and types compiles.
  std::int32_t create_kernel(Source source, const char* name, StorageTypes types, Kernel& kernel,
                             tessera_plugin_error* error);

 private:
  std::int32_t build(Source source, StorageTypes types, Program& program, tessera_plugin_error* error) const;

  cl_context context_;
  cl_device_id device_;
  std::mutex mutex_;
  std::map<std::tuple<Source, std::int32_t, std::int32_t>, Program> built_;
};

}  // namespace opencl
