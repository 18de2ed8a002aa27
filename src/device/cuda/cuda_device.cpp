#include "tessera/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/device/cuda/cuda_graph.h"
#include "tessera/device/cuda/cuda_memory.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/vmm_arena.h"

namespace tessera {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// The id of the CudaDevice whose context is current on this thread, or 0 if there is none. The handle of the context
// would not suffice, because the driver may reuse the primary context's handle after the context was destroyed.
thread_local std::uint64_t current_id = 0;

// The usual granularity of the driver's physical memory.
constexpr std::int64_t kBlockBytes = std::int64_t{2} << 20;
// The memory that an instantiated graph takes: bytes per graph and per node. The numbers come from a least-squares fit
// over 14 runs of three models on an H200 with driver 580 (30 to 1 950 graphs, 574 to 31 000 operators in a run). The
// fit gives 109 KiB per graph and 3.2 KiB per operator, and the constants are near these values. A node takes less than
// an operator, because some operators become two kernels. The fit is within 7 MiB of the memory of each run.
constexpr std::int64_t kGraphBytes = 112 << 10;
constexpr std::int64_t kGraphNodeBytes = 3 << 10;

}  // namespace

CudaDevice::CudaDevice(const Driver& driver) : driver_(driver), id_(next_id()) {}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(Options options) {
  Driver driver;
  if (options.driver != nullptr) {
    driver = *options.driver;
  } else {
    driver = TRY(load_driver());
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice(driver));
  TRY(device->open(options.ordinal));
  int& capability = device->properties_.compute_capability;
  if (options.act_as > 0) capability = std::min(capability, options.act_as);
  return device;
}

CudaDevice::~CudaDevice() {
  release_deferred();
  if (context_ != nullptr) (void)driver_.cuDevicePrimaryCtxRelease(device_);
  if (current_id == id_) current_id = 0;
}

Status CudaDevice::open(int ordinal) {
  name_ = fmt::format("cuda:{}", ordinal);
  TRY(check_driver_version(driver_));
  int count = 0;
  const CUresult init = driver_.cuInit(0);
  if (init != CUDA_ERROR_NO_DEVICE) {
    TRY(check(init, {"cuInit", DeviceCall::kOpenDevice, name_}));
    TRY(check(driver_.cuDeviceGetCount(&count), {"cuDeviceGetCount", DeviceCall::kOpenDevice, name_}));
  }
  if (count == 0) return not_found("the NVIDIA driver shows this process no GPU (CUDA_VISIBLE_DEVICES may hide them)");
  if (ordinal < 0 || ordinal >= count) {
    return not_found(fmt::format("there is no device '{}': the driver shows this process {} GPU{}, cuda:0{}", name_,
                                 count, count == 1 ? "" : "s",
                                 count == 1 ? "" : fmt::format(" to cuda:{}", count - 1)));
  }
  TRY(check(driver_.cuDeviceGet(&device_, ordinal), {"cuDeviceGet", DeviceCall::kOpenDevice, name_}));
  TRY(read_properties());
  TRY(check(driver_.cuDevicePrimaryCtxRetain(&context_, device_),
            {"cuDevicePrimaryCtxRetain", DeviceCall::kOpenDevice, name_}));
  return make_current();
}

Status CudaDevice::read_properties() {
  std::array<char, 256> name{};
  TRY(check(driver_.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device_),
            {"cuDeviceGetName", DeviceCall::kOpenDevice, name_}));
  const int major = TRY(read_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  const int minor = TRY(read_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  const int multiprocessors = TRY(read_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  largest_pitch_ = TRY(read_attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
  const int capability = 10 * major + minor;
  if (capability < kOldestComputeCapability) {
    return unimplemented(
        fmt::format("device '{}' is {}, of compute capability {}.{}; Tessera needs {}.{} or newer (A100, L4, H100 …)",
                    name_, name.data(), major, minor, kOldestComputeCapability / 10, kOldestComputeCapability % 10));
  }
  std::size_t bytes = 0;
  TRY(check(driver_.cuDeviceTotalMem(&bytes, device_), {"cuDeviceTotalMem", DeviceCall::kOpenDevice, name_}));
  properties_ = {.type = "cuda",
                 .on_host = false,
                 .name = fmt::format("{}, {} multiprocessors, {:.1f} GiB", name.data(), multiprocessors,
                                     static_cast<double>(bytes) / (1 << 30)),
                 .memory_bytes = static_cast<std::int64_t>(bytes),
                 .threads = multiprocessors,
                 .compute_capability = capability,
                 .has_native_bf16 = true,  // every GPU of compute capability 8.0 and later
                 .block_bytes = kBlockBytes,
                 .graph_bytes = kGraphBytes,
                 .graph_node_bytes = kGraphNodeBytes};
  return ok_status();
}

Result<int> CudaDevice::read_attribute(CUdevice_attribute attribute) {
  int value = 0;
  TRY(check(driver_.cuDeviceGetAttribute(&value, attribute, device_),
            {"cuDeviceGetAttribute", DeviceCall::kOpenDevice, name_}));
  return value;
}

Status CudaDevice::make_current() const {
  if (current_id == id_) [[likely]]
    return ok_status();
  const CUresult result = driver_.cuCtxSetCurrent(context_);
  if (result != CUDA_SUCCESS)
    return driver_error(driver_, result, {"cuCtxSetCurrent", DeviceCall::kOpenDevice, name_}, 0);
  current_id = id_;
  return ok_status();
}

Status CudaDevice::enter(DeviceCall call, std::string_view object) const {
  TRY(recording_.check(call, object));
  return begin(call, object);
}

Status CudaDevice::lost_before(DeviceCall call, std::string_view object) const {
  std::lock_guard lock(mutex_);
  return lost_.with_context(fmt::format("{} '{}': device '{}' was lost before", device_call_name(call), object, name_));
}

Status CudaDevice::fail(CUresult result, const DriverCall& call) {
  Status error = driver_error(driver_, result, call, result == CUDA_ERROR_OUT_OF_MEMORY ? available_bytes() : 0);
  return error.code() == StatusCode::kDeviceLost ? lose(std::move(error)) : error;
}

Status CudaDevice::lose(Status error) {
  std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = error;
  is_lost_.store(true, std::memory_order_release);
  return error;
}

Result<std::unique_ptr<Allocation>> CudaDevice::allocate(std::size_t bytes, std::string_view name) {
  TRY(enter(DeviceCall::kAllocate, name));
  return TRY(CudaAllocation::create(*this, bytes, name));
}

Result<std::unique_ptr<HostAllocation>> CudaDevice::allocate_host(std::size_t bytes, std::string_view name) {
  TRY(enter(DeviceCall::kAllocate, name));
  return TRY(PinnedAllocation::create(*this, bytes, name));
}

Result<std::unique_ptr<Arena>> CudaDevice::create_arena(ArenaOptions options) {
  TRY(enter(DeviceCall::kCreateArena, options.name));
  return TRY(VmmArena::create(*this, std::move(options)));
}

Result<std::unique_ptr<Stream>> CudaDevice::create_stream(std::string name) {
  TRY(enter(DeviceCall::kCreateStream, name));
  return TRY(CudaStream::create(*this, std::move(name)));
}

Result<std::unique_ptr<Event>> CudaDevice::create_event(EventKind kind) {
  std::string name = fmt::format("event {}", ++events_);
  TRY(enter(DeviceCall::kCreateEvent, name));
  return TRY(CudaEvent::create(*this, std::move(name), kind));
}

std::int64_t CudaDevice::available_bytes() const {
  if (!make_current().ok()) return 0;
  // cuMemGetInfo only reads two numbers. But in the default capture mode, a call of cuMemGetInfo during a capture would
  // fail and invalidate this thread's capture.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (driver_.cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS) return 0;
  std::size_t available = 0;
  std::size_t total = 0;
  const CUresult result = driver_.cuMemGetInfo(&available, &total);
  (void)driver_.cuThreadExchangeStreamCaptureMode(&mode);
  return result == CUDA_SUCCESS ? static_cast<std::int64_t>(available) : 0;
}

void CudaDevice::release(std::function<void()> release) {
  if (recording_.on_this_thread()) {
    std::lock_guard lock(mutex_);
    deferred_.push_back(std::move(release));
  } else if (make_current().ok()) {
    release();
  }
}

void CudaDevice::release_deferred() {
  std::vector<std::function<void()>> releases;
  {
    std::lock_guard lock(mutex_);
    releases.swap(deferred_);
  }
  if (releases.empty() || !make_current().ok()) return;
  for (const std::function<void()>& release : releases) release();
}

void CudaDevice::add_pinned(const std::byte* data, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  pinned_.emplace(data, bytes);
}

void CudaDevice::remove_pinned(const std::byte* data) {
  std::lock_guard lock(mutex_);
  pinned_.erase(data);
}

bool CudaDevice::is_pinned(const void* data, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  auto range = pinned_.upper_bound(begin);
  if (range == pinned_.begin()) return false;
  --range;
  return begin + bytes <= range->first + range->second;
}

}  // namespace tessera
