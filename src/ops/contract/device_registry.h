// The devices that a program knows, by name, each with its kernels: "cpu", "cuda". The CPU is part of the program.
// CUDA's side is a library, libtessera_cuda.so, loaded when it is first asked for, so that one program runs on machines
// without a driver. A program may add devices, and kernels for the devices that are there.
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

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

class RowKernelBuilder;

// One of several ranks, each with a device of its own.
struct RankPlace {
  int rank = 0;
  int ranks = 1;
};

// Which of a type's devices, and how.
struct DeviceChoice {
  int ordinal = 0;  // of those that this process sees; of a rank, its own
  int act_as = 0;   // choose kernels as for this older compute capability; 0: the device's own
  int ranks = 1;    // that have such a device each
};

// A device's whole side of the engine. Immutable, and valid to the end of the process.
struct Backend {
  std::function<Result<std::unique_ptr<Device>>(const DeviceChoice& choice)> create_device{};
  const KernelTable* kernels = nullptr;
  // What measured times and chosen algorithms depend on beside the device's name: versions of driver and libraries.
  // Null: on nothing.
  std::function<std::string()> versions{};
  // Opaque algorithms that libraries chose so far in this process, and those of an earlier one with such a device and
  // the same versions(), to be told before anything is bound: each is checked before it is used. kDataLoss for what no
  // export gave. Thread-safe. Null: there are none.
  Json (*export_algorithms)() = nullptr;
  Status (*import_algorithms)(const Json& algorithms) = nullptr;
  // What other processes have measured goes into later exports; this process keeps what it has. kDataLoss as above.
  // Null: nothing is measured.
  Status (*learn_algorithms)(const Json& algorithms) = nullptr;
  // Measures algorithms for one problem that this process has met and nobody has measured, on a device that is idle,
  // for a moment. What it finds is in later exports, for later processes. False where none is left. Null: there are
  // none.
  Result<bool> (*measure_algorithms)(Device& device) = nullptr;
  // What generates kernels for a compiler that fuses (fused/row_kernel_builder.h). Null: nothing does.
  const RowKernelBuilder& (*row_kernels)() = nullptr;
  // Does what libraries do once, before their first answer. May run on a thread of its own while the device is in use;
  // a failure shows again where the library is used. Null: there is nothing.
  void (*start_libraries)(Device& device) = nullptr;
  // For kernels from outside: calls `enqueue` with the native handle of one of its streams (CUDA: cudaStream_t) and
  // gives back its error, or that of its launches. `name` is the kernel's. Null: streams have no handle.
  Status (*launch)(Stream& stream, const char* name, const std::function<Status(void* handle)>& enqueue) = nullptr;
};

// A type of device under its name.
struct DeviceType {
  std::string name;           // "cuda"; what DeviceProperties::type says
  bool takes_choice = false;  // "NAME:1" and "NAME,sm_80" are names of its devices too
  // Called once, when it is first asked for; an error is kept. kUnimplemented where this build or machine has no such
  // backend, with the reason.
  std::function<Result<const Backend*>()> load;
};

// Adding is for one thread, before the registry is read; then it is immutable and thread-safe. Pointers that it returns
// live as long as it.
class DeviceRegistry {
 public:
  DeviceRegistry();
  ~DeviceRegistry();
  DeviceRegistry(DeviceRegistry&&) noexcept;
  DeviceRegistry& operator=(DeviceRegistry&&) noexcept;

  // kInvalidArgument for a name that is taken.
  Status add(DeviceType type);
  // A kernel for devices of that type, in place of the backend's own where that has one for the operator.
  // kInvalidArgument for an unknown type, and where one was added for the operator before.
  Status add_kernel(std::string_view type, const KernelDef& kernel);

  // Each: kInvalidArgument for an unknown type, with those that are known; or the error of its load().
  Result<const Backend*> backend(std::string_view type) const;
  Result<const KernelTable*> kernels(std::string_view type) const;

  // "cpu", "cuda" (the first GPU that this process sees) or "cuda:N". "cuda,sm_80" and "cuda:N,sm_80" choose kernels as
  // for that older GPU, to test what it will run (a library built for it alone brings the PTX that the driver compiles
  // for the GPU at hand). kInvalidArgument for another name.
  Status check_name(std::string_view name) const;
  // For a rank: "cuda:N" is rank 0's, and rank r has "cuda:(N+r)"; ranks on the CPU share it.
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

// What libtessera_cuda.so exports, under kBackendSymbol. `interface` must equal kBackendInterface of the program:
// the two share C++ types, which a version and a compiler fix.
struct BackendExport {
  const char* interface = nullptr;
  const Backend* backend = nullptr;
};
inline constexpr const char* kBackendSymbol = "tessera_backend";  // extern "C" const BackendExport tessera_backend
extern const char* const kBackendInterface;                       // version and compiler

}  // namespace tessera
