// A device's whole side of the engine: how to open one, and its kernels. The CPU's is
// part of the program; CUDA's is a library, libtessera_cuda.so, loaded when it is first asked for, so that one
// program runs on machines without a driver.
//
//   std::unique_ptr<Device> device = TRY(open_device("cuda:1"));
//   const Backend& backend = *TRY(backend_of(device->properties().kind));
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/op.h"

namespace tessera {

// Immutable, and valid to the end of the process.
struct Backend {
  DeviceKind kind = DeviceKind::kCpu;
  // `act_as`: choose kernels as for this older compute capability; 0: the device's own.
  Result<std::unique_ptr<Device>> (*create_device)(int ordinal, int act_as) = nullptr;
  const KernelTable* kernels = nullptr;
  // What measured times and chosen algorithms depend on beside the device's name: versions of driver and libraries.
  // Null: on nothing.
  std::string (*versions)() = nullptr;
  // Opaque algorithms that libraries chose so far in this process, and those of an earlier one with such a device and
  // the same versions(), to be told before anything is bound: each is checked before it is used. kDataLoss for what no
  // export gave. Thread-safe. Null: there are none.
  Json (*export_algorithms)() = nullptr;
  Status (*import_algorithms)(const Json& algorithms) = nullptr;
};

// Thread-safe. kUnimplemented where this build has no such backend or its library cannot be loaded, with the reason.
Result<const Backend*> backend_of(DeviceKind kind);

struct DeviceName {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;
  int act_as = 0;
};
// "cpu", "cuda" (the first GPU that this process sees) or "cuda:N". "cuda,sm_80" and "cuda:N,sm_80" choose kernels as
// for that older GPU, to test what it will run (a library built for it alone brings the PTX that the driver compiles
// for the GPU at hand). kInvalidArgument for another name.
Result<DeviceName> parse_device_name(std::string_view name);
Result<std::unique_ptr<Device>> open_device(std::string_view name);

// What libtessera_cuda.so exports, under kBackendSymbol. `interface` must equal kBackendInterface of the program:
// the two share C++ types, which a version and a compiler fix.
struct BackendExport {
  const char* interface = nullptr;
  const Backend* backend = nullptr;
};
inline constexpr const char* kBackendSymbol = "tessera_backend";  // extern "C" const BackendExport tessera_backend
extern const char* const kBackendInterface;                       // version and compiler

}  // namespace tessera
