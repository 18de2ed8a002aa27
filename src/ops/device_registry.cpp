#include "tessera/ops/device_registry.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/host_limits.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/contract/rooms.h"

namespace tessera {

const char* const kBackendInterface = TESSERA_BACKEND_INTERFACE;

// A type of device, and its backend or the error from loading it.
struct DeviceRegistry::Entry {
  // Loads the backend, and adds the kernels that add_kernel() collected to the backend's own.
  Status ensure_loaded() const {
    std::call_once(once, [this] {
      backend.emplace(type.load());
      if (!backend->ok()) return;
      kernels.emplace((**backend)->kernels());
      for (const KernelDef& kernel : added) kernels = kernels->with(kernel);
    });
    return backend->status();
  }

  DeviceType type;
  std::vector<KernelDef> added{};
  mutable std::once_flag once{};
  mutable std::optional<Result<const Backend*>> backend{};
  mutable std::optional<KernelTable> kernels{};
};

DeviceRegistry::DeviceRegistry() = default;
DeviceRegistry::~DeviceRegistry() = default;
DeviceRegistry::DeviceRegistry(DeviceRegistry&&) noexcept = default;
DeviceRegistry& DeviceRegistry::operator=(DeviceRegistry&&) noexcept = default;

Status DeviceRegistry::add(DeviceType type) {
  if (find(type.name).ok())
    return invalid_argument(fmt::format("a device named \"{}\" is registered already", type.name));
  entries_.push_back(std::make_unique<Entry>(std::move(type)));
  return ok_status();
}

Status DeviceRegistry::add_kernel(std::string_view type, const KernelDef& kernel) {
  TRY(find(type));
  Entry& entry = **std::ranges::find_if(entries_, [&](const auto& e) { return e->type.name == type; });
  if (std::ranges::any_of(entry.added, [&](const KernelDef& known) { return known.op == kernel.op; }))
    return invalid_argument(fmt::format("device {}: a kernel for operator '{}' was added already", type, kernel.op));
  entry.added.push_back(kernel);
  return ok_status();
}

Result<const DeviceRegistry::Entry*> DeviceRegistry::find(std::string_view type) const {
  std::string known;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->type.name == type) return entry.get();
    known += (known.empty() ? "" : ", ") + entry->type.name;
  }
  return invalid_argument(fmt::format("no device is named \"{}\"; there are {}", type, known));
}

Result<const Backend*> DeviceRegistry::backend(std::string_view type) const {
  const Entry* entry = TRY(find(type));
  TRY(entry->ensure_loaded());
  return *entry->backend;
}

Result<const KernelTable*> DeviceRegistry::kernels(std::string_view type) const {
  const Entry* entry = TRY(find(type));
  TRY(entry->ensure_loaded());
  return &*entry->kernels;
}

Result<DeviceRegistry::Named> DeviceRegistry::parse(std::string_view name) const {
  // Reads a number of one to four digits after `prefix`, and removes both from `rest`.
  const auto take = [](std::string_view& rest, std::string_view prefix, int& number) {
    if (!rest.starts_with(prefix)) return;
    const char* first = rest.data() + prefix.size();
    int value = 0;
    const auto [end, error] = std::from_chars(first, rest.data() + rest.size(), value);
    if (error != std::errc{} || value < 0 || end - first > 4) return;
    number = value;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  };
  constexpr int kOldest = 80;  // the oldest supported compute capability
  std::string accepted;
  bool any_choice = false;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const DeviceType& type = entry->type;
    Named named{.entry = entry.get(), .choice = {}};
    std::string_view rest = name;
    if (rest.starts_with(type.name)) {
      rest.remove_prefix(type.name.size());
      if (type.takes_choice) {
        take(rest, ":", named.choice.ordinal);
        take(rest, ",sm_", named.choice.act_as);
      }
      if (rest.empty() && (named.choice.act_as == 0 || named.choice.act_as >= kOldest)) return named;
    }
    accepted += fmt::format("{}{}", accepted.empty() ? "" : ", ", type.name);
    if (type.takes_choice) accepted += fmt::format(" and {}:N", type.name);
    any_choice |= type.takes_choice;
  }
  return invalid_argument(fmt::format("\"{}\" is not the name of a device; accepted: {}{}", name, accepted,
                                      any_choice ? ", or with \",sm_80\" to act as an older GPU" : ""));
}

Status DeviceRegistry::check_name(std::string_view name) const { return parse(name).status(); }

Result<std::unique_ptr<Device>> DeviceRegistry::open(std::string_view name, RankPlace place) const {
  Named named = TRY(parse(name));
  named.choice.ordinal += place.rank;
  named.choice.ranks = place.ranks;
  TRY(named.entry->ensure_loaded());
  return (**named.entry->backend)->create_device(named.choice);
}

namespace {

constexpr const char* kCudaLibrary = "libtessera_cuda.so";

Result<std::unique_ptr<Device>> create_cpu(const DeviceChoice& choice) {
  // Ranks on the CPU share the cores, so each rank gets an equal number of threads.
  const int threads = choice.ranks == 1 ? 0 : std::clamp(read_usable_cores() / choice.ranks, 1, CpuDevice::kMaxThreads);
  return TRY(CpuDevice::create({.threads = threads}));
}

Result<const Backend*> cpu_backend() {
  static const Backend backend = [] {
    Backend cpu{.create_device = create_cpu, .kernels = cpu_kernels};
    add_row_kernels_cpu(cpu);
    return cpu;
  }();
  return &backend;
}

// Returns the error for a failed dlopen(). The message of dlopen(), `said`, starts with the name of the missing file,
// which is the backend or a library that the backend needs.
Status cuda_not_loaded(const std::string& said) {
  if (said.starts_with(kCudaLibrary))
    return unimplemented(
        fmt::format("device cuda: {} (the CUDA backend is a library of its own: `make build-cuda` makes it, and for "
                    "Python the wheel "
                    "tessera-engine-cuda brings it)",
                    said));
  return unimplemented(
      fmt::format("device cuda: {} needs CUDA's libraries: {}; install CUDA's toolkit or NVIDIA's Python wheels "
                  "(nvidia-cublas), or "
                  "name the folder in LD_LIBRARY_PATH",
                  kCudaLibrary, said));
}

// Loads the CUDA backend. dlopen() searches the RPATH of this program or library. The RPATH consists of that file's own
// folder and ../lib.
Result<const Backend*> load_cuda_backend() {
  void* library = dlopen(kCudaLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return cuda_not_loaded(dlerror());
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

DeviceRegistry built_in_devices() {
  DeviceRegistry devices;
  (void)devices.add({.name = "cpu", .load = cpu_backend});
  (void)devices.add({.name = "cuda", .takes_choice = true, .load = load_cuda_backend});
  return devices;
}

}  // namespace tessera
