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

// One of several ranks, each with a device of its own.
struct RankPlace {
  int rank = 0;
  int ranks = 1;
};

// One type of device, with its name.
struct DeviceType {
  std::string name;           // for example "cuda"; equals DeviceProperties::type
  bool takes_choice = false;  // whether "NAME:1" and "NAME,sm_80" name its devices too
  // Loads the backend. It is called once, on first use, and its result is kept, errors too. Returns kUnimplemented,
  // with the reason, if this build or machine has no such backend.
  std::function<Result<const Backend*>()> load;
};

// One thread adds devices and kernels before anyone reads the registry; after that it is immutable and thread-safe.
// Pointers that it returns live as long as the registry.
class DeviceRegistry {
 public:
  DeviceRegistry();
  ~DeviceRegistry();
  DeviceRegistry(DeviceRegistry&&) noexcept;
  DeviceRegistry& operator=(DeviceRegistry&&) noexcept;

  // Adds a type of device. kInvalidArgument for a name that is taken.
  Status add(DeviceType type);
  // Adds a kernel for devices of that type. It replaces the backend's own kernel for the same operator.
  // kInvalidArgument for an unknown type, and if a kernel was already added for the operator.
  Status add_kernel(std::string_view type, const KernelDef& kernel);

  // Return the backend of a type of device, and its kernels. Both return kInvalidArgument for an unknown type, with the
  // known types in the message, or the error of its load().
  Result<const Backend*> backend(std::string_view type) const;
  Result<const KernelTable*> kernels(std::string_view type) const;

  // Accepts "cpu", "cuda" (the first GPU that this process sees) or "cuda:N". "cuda,sm_80" and "cuda:N,sm_80" choose
  // the kernels of that older GPU, in order to test what it will run. A library that was built for the older GPU alone
  // contains PTX, which the driver compiles for the present GPU. kInvalidArgument for another name.
  Status check_name(std::string_view name) const;
  // Opens a device. For ranks, "cuda:N" is rank 0's device and rank r gets "cuda:(N+r)"; ranks on the CPU share it.
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

DeviceRegistry built_in_devices();  // cpu, cuda

// The symbol that libtessera_cuda.so exports, named kBackendSymbol. `interface` must equal the program's
// kBackendInterface: library and program pass C++ types to each other, and these depend on version and compiler.
struct BackendExport {
  const char* interface = nullptr;
  const Backend* backend = nullptr;
};
inline constexpr const char* kBackendSymbol = "tessera_backend";  // extern "C" const BackendExport tessera_backend
extern const char* const kBackendInterface;                       // version and compiler

}  // namespace tessera
