#include "tessera/device/cuda/cuda_stream.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_graph.h"
#include "tessera/device/cuda/staging.h"

namespace tessera {
namespace {

// Returns the event as a CudaEvent of `device`, or null if it belongs to another device.
CudaEvent* event_of(CudaDevice& device, Event& event) {
  auto* mine = dynamic_cast<CudaEvent*>(&event);
  return mine != nullptr && mine->device() == &device ? mine : nullptr;
}

}  // namespace

CudaStream::CudaStream(CudaDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

Result<std::unique_ptr<CudaStream>> CudaStream::create(CudaDevice& device, std::string name) {
  std::unique_ptr<CudaStream> stream(new CudaStream(device, std::move(name)));
  TRY(device.check(device.driver().cuStreamCreate(&stream->handle_, CU_STREAM_NON_BLOCKING),
                   {"cuStreamCreate", DeviceCall::kCreateStream, stream->name_}));
  stream->staging_ = TRY(StagingRing::create(device, stream->name_));
  return stream;
}

CudaStream::~CudaStream() {
  CudaStream::abandon_recording();
  if (handle_ == nullptr) return;
  // Waits for the stream and destroys it before staging_ is destroyed, because copies on the stream may still read the
  // buffers of staging_.
  device_.release([&driver = device_.driver(), handle = handle_] {
    (void)driver.cuStreamSynchronize(handle);
    (void)driver.cuStreamDestroy(handle);
  });
}

Status CudaStream::begin_launch(const char* kernel) { return device_.begin(DeviceCall::kLaunch, kernel); }

Status CudaStream::launch_error(const char* kernel, cudaError_t error) const {
  std::string message = fmt::format("{} '{}' on stream '{}': {}, {}", device_call_name(DeviceCall::kLaunch), kernel,
                                    name_, cudaGetErrorName(error), cudaGetErrorString(error));
  if (recording_) message += fmt::format(" (while '{}' is being recorded)", recording_what_);
  if (error == cudaErrorMemoryAllocation) return resource_exhausted(std::move(message));
  // The runtime API gives the driver's errors the same numbers as the driver API, so the number may be cast.
  if (is_device_lost(static_cast<CUresult>(error))) return device_.lose(device_lost(std::move(message)));
  return internal_error(std::move(message));
}

Status CudaStream::enter(DeviceCall call) const {
  if (recording_) return refused_while_recording(call, name_, recording_what_);
  return device_.enter(call, name_);
}

// Returns the error for a copy between host and device on a side stream. This copy is not allowed, because
// synchronize() would not wait for it.
Status CudaStream::of_the_host_alone() const {
  return failed_precondition(fmt::format("stream '{}' is a side stream, which cannot copy to or from the host", name_));
}

Status CudaStream::upload(DeviceAddress device, const void* host, std::size_t bytes) {
  TRY(enter(DeviceCall::kUpload));
  TRY(check_addresses(DeviceCall::kUpload, name_, bool(device), host != nullptr, bytes));
  if (bytes == 0) return ok_status();
  if (staging_ == nullptr) return of_the_host_alone();
  if (!device_.is_pinned(host, bytes)) {
    return staging_->upload(handle_, device.raw(), static_cast<const std::byte*>(host), bytes);
  }
  return device_.check(device_.driver().cuMemcpyHtoDAsync(address_of(device.raw()), host, bytes, handle_),
                       {"cuMemcpyHtoDAsync", DeviceCall::kUpload, name_, bytes});
}

Status CudaStream::download(void* host, DeviceAddress device, std::size_t bytes) {
  TRY(enter(DeviceCall::kDownload));
  TRY(check_addresses(DeviceCall::kDownload, name_, host != nullptr, bool(device), bytes));
  if (bytes == 0) return ok_status();
  if (staging_ == nullptr) return of_the_host_alone();
  // If `host` is pinned memory, the call returns at once. Otherwise it returns after the copy.
  return device_.check(device_.driver().cuMemcpyDtoHAsync(host, address_of(device.raw()), bytes, handle_),
                       {"cuMemcpyDtoHAsync", DeviceCall::kDownload, name_, bytes});
}

Status CudaStream::copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(from), bytes));
  if (bytes == 0) return ok_status();
  TRY(begin_launch("copy"));
  return device_.check(device_.driver().cuMemcpyDtoDAsync(address_of(to.raw()), address_of(from.raw()), bytes, handle_),
                       {"cuMemcpyDtoDAsync", DeviceCall::kLaunch, "copy", bytes});
}

Status CudaStream::copy_rows(DeviceAddress to, DeviceAddress from, std::size_t bytes, std::int64_t pitch,
                             std::int64_t rows) {
  if (rows <= 1 || pitch > device_.largest_pitch()) return Stream::copy_rows(to, from, bytes, pitch, rows);
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(from), bytes));
  if (bytes == 0) return ok_status();
  TRY(begin_launch("copy of rows"));
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = address_of(from.raw());
  copy.dstDevice = address_of(to.raw());
  copy.srcPitch = copy.dstPitch = static_cast<std::size_t>(pitch);
  copy.WidthInBytes = bytes;
  copy.Height = static_cast<std::size_t>(rows);
  return device_.check(device_.driver().cuMemcpy2DAsync(&copy, handle_),
                       {"cuMemcpy2DAsync", DeviceCall::kLaunch, "copy of rows", bytes * copy.Height});
}

Status CudaStream::fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) {
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(to), bytes));
  if (bytes == 0) return ok_status();
  TRY(begin_launch("fill"));
  return device_.check(device_.driver().cuMemsetD8Async(address_of(to.raw()), value, bytes, handle_),
                       {"cuMemsetD8Async", DeviceCall::kLaunch, "fill", bytes});
}

// Returns the side stream, which has the highest priority. Its kernels have few blocks, which wait for other ranks. The
// priority lets these blocks start as soon as a block of another kernel ends.
Result<Stream*> CudaStream::side() {
  if (side_ != nullptr) return side_.get();
  TRY(enter(DeviceCall::kCreateStream));
  constexpr int kHighest = std::numeric_limits<int>::min();  // the driver clamps it to the nearest priority
  std::unique_ptr<CudaStream> side(new CudaStream(device_, name_ + ", side"));
  TRY(device_.check(device_.driver().cuStreamCreateWithPriority(&side->handle_, CU_STREAM_NON_BLOCKING, kHighest),
                    {"cuStreamCreateWithPriority", DeviceCall::kCreateStream, side->name_}));
  forked_ = TRY(CudaEvent::create(device_, name_ + ", fork", EventKind::kOrder));
  joined_ = TRY(CudaEvent::create(device_, name_ + ", join", EventKind::kOrder));
  side_ = std::move(side);
  return side_.get();
}

Status CudaStream::fork_side() {
  TRY(side());
  TRY(order(*this, *side_, *forked_));
  forked_in_recording_ = recording_;
  side_->recording_ = recording_;
  side_->recording_what_ = recording_what_;
  return ok_status();
}

Status CudaStream::join_side() {
  TRY(side());
  return order(*side_, *this, *joined_);
}

Status CudaStream::order(const CudaStream& earlier, const CudaStream& later, CudaEvent& by) const {
  TRY(device_.begin(DeviceCall::kLaunch, later.name_));
  TRY(by.record(earlier.handle_, earlier.name_));
  return device_.check(device_.driver().cuStreamWaitEvent(later.handle_, by.handle(), CU_EVENT_WAIT_DEFAULT),
                       {"cuStreamWaitEvent", DeviceCall::kLaunch, later.name_});
}

Status CudaStream::record(Event& event) {
  TRY(enter(DeviceCall::kRecordEvent));
  CudaEvent* const mine = event_of(device_, event);
  if (mine == nullptr) return event_of_another_device(DeviceCall::kRecordEvent, name_);
  return mine->record(handle_, name_);
}

Status CudaStream::wait(Event& event) {
  TRY(enter(DeviceCall::kWaitForEvent));
  CudaEvent* const mine = event_of(device_, event);
  if (mine == nullptr) return event_of_another_device(DeviceCall::kWaitForEvent, name_);
  return device_.check(device_.driver().cuStreamWaitEvent(handle_, mine->handle(), CU_EVENT_WAIT_DEFAULT),
                       {"cuStreamWaitEvent", DeviceCall::kWaitForEvent, name_});
}

Status CudaStream::synchronize() {
  TRY(enter(DeviceCall::kSynchronize));
  return device_.check(device_.driver().cuStreamSynchronize(handle_),
                       {"cuStreamSynchronize", DeviceCall::kSynchronize, name_});
}

Status CudaStream::begin_recording(std::string what) {
  // This function calls open() instead of enter(). If a recording is already open, the error of open() is clearer,
  // because it names both recordings.
  TRY(device_.recording().open(*this, what));
  Status begun = device_.begin(DeviceCall::kBeginRecording, what);
  if (begun.ok()) {
    begun = device_.check(device_.driver().cuStreamBeginCapture(handle_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                          {"cuStreamBeginCapture", DeviceCall::kBeginRecording, what});
  }
  if (!begun.ok()) {
    (void)device_.recording().close(*this);
    return begun;
  }
  recording_ = true;
  forked_in_recording_ = false;
  recording_what_ = std::move(what);
  return ok_status();
}

Result<std::unique_ptr<RecordedGraph>> CudaStream::end_recording() {
  if (!recording_) return no_open_recording(name_);
  CUgraph graph = nullptr;
  Status ended = end_capture(&graph);
  const Status closed = device_.recording().close(*this);
  device_.release_deferred();
  if (!closed.ok()) ended = closed;
  Result<std::unique_ptr<CudaGraph>> recorded =
      ended.ok() ? CudaGraph::create(device_, recording_what_, graph, handle_, forked_in_recording_)
                 : Result<std::unique_ptr<CudaGraph>>(ended);
  if (graph != nullptr) (void)device_.driver().cuGraphDestroy(graph);
  if (!recorded.ok()) return recorded.status();
  return std::move(recorded).value();
}

Status CudaStream::recording_status() const {
  if (!recording_) return ok_status();
  TRY(device_.recording().status(*this));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  TRY(device_.check(device_.driver().cuStreamIsCapturing(handle_, &status),
                    {"cuStreamIsCapturing", DeviceCall::kLaunch, name_}));
  if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return ok_status();
  return failed_precondition(
      fmt::format("recording '{}' is dropped: a call was made that capture does not allow (an allocation, a "
                  "synchronisation or the initialisation of a library)",
                  recording_what_));
}

void CudaStream::abandon_recording() {
  if (!recording_) return;
  CUgraph graph = nullptr;
  // The recording is dropped in any case, so the error that end_capture() returns for an invalid recording does not
  // matter.
  (void)end_capture(&graph);
  if (graph != nullptr) (void)device_.driver().cuGraphDestroy(graph);
  (void)device_.recording().close(*this);
  device_.release_deferred();
}

Status CudaStream::end_capture(CUgraph* graph) {
  recording_ = false;
  if (side_ != nullptr) side_->recording_ = false;
  TRY(device_.make_current());
  if (!device_.recording().on_this_thread()) return replace_handle();
  return device_.check(device_.driver().cuStreamEndCapture(handle_, graph),
                       {"cuStreamEndCapture", DeviceCall::kEndRecording, recording_what_});
}

// Replaces the driver's stream. The driver's function that ends a capture works only on the thread that began the
// capture. If a faulty caller tries to end the capture on another thread, the capture ends only with its stream.
Status CudaStream::replace_handle() {
  const bool had_side =
      std::exchange(side_, nullptr) != nullptr;  // the side stream may take part in the capture, so it is replaced too
  const Driver& driver = device_.driver();
  TRY(device_.check(driver.cuStreamDestroy(handle_), {"cuStreamDestroy", DeviceCall::kEndRecording, recording_what_}));
  handle_ = nullptr;
  // Waits for the old stream's work, which must end before the new stream's work begins.
  Status made =
      device_.check(driver.cuCtxSynchronize(), {"cuCtxSynchronize", DeviceCall::kEndRecording, recording_what_});
  if (made.ok()) {
    made = device_.check(driver.cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING),
                         {"cuStreamCreate", DeviceCall::kEndRecording, recording_what_});
  }
  if (made.ok() && had_side) made = side().status();
  if (made.ok()) return made;
  // Without a handle, later work would silently go to the context's default stream. The device is therefore marked as
  // lost.
  if (CUstream unused = std::exchange(handle_, nullptr); unused != nullptr) (void)driver.cuStreamDestroy(unused);
  return device_.lose(device_lost(fmt::format("stream '{}' is gone with its recording: {}", name_, made.message())));
}

}  // namespace tessera
