// The devices that a program knows by name ("cpu", "cuda"), each with its kernels. The CPU backend is part of the
// program. The CUDA backend is a library, libtessera_cuda.so, which is loaded on first use, so that the same program
// runs on machines without a driver. A program may add devices, and may add kernels for existing devices.
//
//   DeviceRegistry devices = built_in_devices();
//   TRY(devices.add_kernel("cpu", kMyOpCpu));
//   std::unique_ptr<Device> device = TRY(devices.open("cuda:1"));
//   const KernelTable& kernels = *TRY(devices.kernels(device->properties().type));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/backend.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// The rank for which a device is opened, and the number of ranks of its group. Each rank opens one device.
struct RankPlace {
  int rank = 0;
  int ranks = 1;
};

// One type of device, with its name.
struct DeviceType {
  std::string name;           // for example "cuda"; equals DeviceProperties::type
  bool takes_choice = false;  // whether a number or an architecture may follow the name: "NAME:1", "NAME,sm_80"
  // Loads the backend. The registry calls load() once, on first use, and keeps the result, even if it is an error.
  // load() returns kUnimplemented, with the reason, if this build or machine has no such backend.
  std::function<Result<const Backend*>()> load;
};

// One thread adds all devices and kernels before any thread reads the registry. After that the registry is immutable
// and thread-safe. Pointers that it returns are valid as long as the registry exists.
class DeviceRegistry {
 public:
  DeviceRegistry();
  ~DeviceRegistry();
  DeviceRegistry(DeviceRegistry&&) noexcept;
  DeviceRegistry& operator=(DeviceRegistry&&) noexcept;

  // Adds a type of device. Returns kInvalidArgument if the name is taken.
  Status add(DeviceType type);
  // Adds a kernel for devices of type `type`. The kernel replaces the backend's own kernel for the same operator.
  // Returns kInvalidArgument if the type is unknown, or if a kernel was already added for the operator.
  Status add_kernel(std::string_view type, const KernelDef& kernel);

  // backend() returns the backend of a type of device, and kernels() returns its kernels. For an unknown type both
  // return kInvalidArgument, with the known types in the message. If the type's load() failed, both return that error.
  Result<const Backend*> backend(std::string_view type) const;
  Result<const KernelTable*> kernels(std::string_view type) const;

  // Accepts "cpu", "cuda" (the first GPU that this process sees) or "cuda:N". "cuda,sm_80" and "cuda:N,sm_80" choose
  // the kernels that an older GPU would run, in order to test them on this GPU. If the CUDA library was built only for
  // the older GPU, the driver compiles its PTX for this GPU. Returns kInvalidArgument for any other name.
  Status check_name(std::string_view name) const;
  // Opens the device of one rank. If `name` is "cuda:N", rank r gets "cuda:(N+r)". All ranks on the CPU share the CPU.
  Result<std::unique_ptr<Device>> open(std::string_view name, RankPlace place = {}) const;

 private:
  struct Entry;
  struct Named {
    const Entry* entry = nullptr;
    DeviceChoice choice;
  };
  Result<const Entry*> find(std::string_view type) const;
  Result<Named> parse(std::string_view name) const;
  std::vector<std::unique_ptr<Entry>> entries_;  // in the order in which they were added
};

DeviceRegistry built_in_devices();  // has the devices cpu and cuda

// libtessera_cuda.so exports one symbol of this type, under the name kBackendSymbol. `interface` must equal the
// program's kBackendInterface, because library and program pass C++ types to each other. The layout of these types
// depends on version and compiler.
struct BackendExport {
  const char* interface = nullptr;
  const Backend* backend = nullptr;
};
inline constexpr const char* kBackendSymbol = "tessera_backend";  // extern "C" const BackendExport tessera_backend
extern const char* const kBackendInterface;                       // version and compiler

}  // namespace tessera
