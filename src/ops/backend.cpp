#include "tessera/ops/backend.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <string>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/registry.h"

namespace tessera {

const char* const kBackendInterface = TESSERA_BACKEND_INTERFACE;

namespace {

constexpr const char* kCudaLibrary = "libtessera_cuda.so";

Result<std::unique_ptr<Device>> create_cpu(int /*ordinal*/, int /*act_as*/) { return TRY(CpuDevice::create({})); }

const Backend& cpu_backend() {
  static const Backend backend{.kind = DeviceKind::kCpu, .create_device = create_cpu, .kernels = &cpu_kernels()};
  return backend;
}

// dlopen looks in the RPATH of this program or library: beside it, and in ../lib.
Result<const Backend*> load_cuda_backend() {
  void* library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return unimplemented(fmt::format(
        "device cuda: {} (the CUDA backend is a library of its own, made by `make build-cuda`)", dlerror()));
  const auto* exported = static_cast<const BackendExport*>(dlsym(library, kBackendSymbol));
  if (exported == nullptr)
    return unimplemented(fmt::format("device cuda: {} has no symbol {}", kCudaLibrary, kBackendSymbol));
  if (std::string_view(exported->interface) != kBackendInterface)
    return unimplemented(
        fmt::format("device cuda: {} was built for \"{}\", this program for \"{}\"; install both "
                    "from one build",
                    kCudaLibrary, exported->interface, kBackendInterface));
  return exported->backend;  // the library stays loaded
}

}  // namespace

Result<const Backend*> backend_of(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return &cpu_backend();
  static const Result<const Backend*> cuda = load_cuda_backend();
  return cuda;
}

Result<DeviceName> parse_device_name(std::string_view name) {
  if (name == "cpu") return DeviceName{};
  // A number of one to four digits after `prefix`, which is taken off `rest`.
  const auto take = [](std::string_view& rest, std::string_view prefix, int& number) {
    if (!rest.starts_with(prefix)) return false;
    const char* first = rest.data() + prefix.size();
    const auto [end, error] = std::from_chars(first, rest.data() + rest.size(), number);
    if (error != std::errc{} || number < 0 || end - first > 4) return false;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    return true;
  };
  DeviceName device{.kind = DeviceKind::kCuda};
  std::string_view rest = name;
  if (rest.starts_with("cuda")) {
    rest.remove_prefix(4);
    take(rest, ":", device.ordinal);
    if (take(rest, ",sm_", device.act_as) && device.act_as < 80) rest = name;
    if (rest.empty()) return device;
  }
  return invalid_argument(fmt::format(
      "\"{}\" is no device; accepted are cpu, cuda and cuda:N, or with \",sm_80\" to act as an older GPU", name));
}

Result<std::unique_ptr<Device>> open_device(std::string_view name) {
  const DeviceName device = TRY(parse_device_name(name));
  const Backend* backend = TRY(backend_of(device.kind));
  return backend->create_device(device.ordinal, device.act_as);
}

}  // namespace tessera
