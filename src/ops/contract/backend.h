// The engine's interface to one type of device. It opens devices, provides their kernels, and exports the algorithms
// that libraries have chosen, so that later processes can use them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

class RowKernelBuilder;

// Says which device of a type to open, and how.
struct DeviceChoice {
  int ordinal = 0;  // index of the device among those that this process sees
  int act_as = 0;   // older compute capability whose kernels are used; 0: the device's own
  int ranks = 1;    // number of ranks, each with a device of this type
};

// The engine's interface to one type of device. Immutable, and valid to the end of the process.
struct Backend {
  std::function<Result<std::unique_ptr<Device>>(const DeviceChoice& choice)> create_device{};
  // Returns the kernels. This member is a function and not a pointer to the kernels, because static initialisation may
  // construct the kernels after this object.
  const KernelTable& (*kernels)() = nullptr;
  // Returns the versions of driver and libraries. Measured times and chosen algorithms apply only to the same versions
  // and the same device name. If this function is null, they apply to every device of the same name.
  std::function<std::string()> versions{};
  // export_algorithms() returns the algorithms that libraries have chosen so far in this process, in an opaque form.
  // import_algorithms() adopts what export_algorithms() returned in an earlier process with the same device and the
  // same versions(). It must run before anything is bound. It returns kDataLoss if export_algorithms() did not make the
  // data. Each imported algorithm is checked before it is used. Both functions are thread-safe. Both are null if the
  // libraries have no algorithms to keep.
  Json (*export_algorithms)() = nullptr;
  Status (*import_algorithms)(const Json& algorithms) = nullptr;
  // Adds the measurements of other processes to later exports. This process still uses its own algorithms. Returns
  // kDataLoss if export_algorithms() did not make the data. The function is null if nothing is measured.
  Status (*learn_algorithms)(const Json& algorithms) = nullptr;
  // Measures the algorithms for one matrix-product problem that this process has used and that no process has measured
  // yet. The device must be idle. The call is short. Later exports include the result, for later processes. Returns
  // false if no problem is left. The function is null if nothing is measured.
  Result<bool> (*measure_algorithms)(Device& device) = nullptr;
  // Returns the builder that generates row kernels for a fusing compiler (fused/row_kernel_builder.h). The function is
  // null if the backend generates no kernels.
  const RowKernelBuilder& (*row_kernels)() = nullptr;
  // Runs the one-time initialisation that libraries would otherwise do at their first use. The call may run on a thread
  // of its own while the device is in use. The function does not report a failure, because the first real use of the
  // library fails in the same way. The function is null if there is nothing to initialise.
  void (*start_libraries)(Device& device) = nullptr;
  // Launches a kernel that is not the engine's own. Calls `enqueue` with the stream's native handle (CUDA:
  // cudaStream_t), and returns the error of that call or of its launches. `name` is the kernel's name. The function is
  // null if streams have no native handle.
  Status (*launch)(Stream& stream, const char* name, const std::function<Status(void* handle)>& enqueue) = nullptr;
};

}  // namespace tessera
