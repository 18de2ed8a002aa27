// The contract of a device: memory, arenas, streams, events and recorded graphs. Backends (cpu/, cuda/) implement it
// and pass one conformance suite (testing/conformance.h).
//
//   std::unique_ptr<Device> device = TRY(CpuDevice::create({}));
//   std::unique_ptr<Arena> arena = TRY(device->create_arena({.reserve_bytes = 1 << 30, .name = "arena"}));
//   std::unique_ptr<Stream> stream = TRY(device->create_stream("main"));
//   TRY(stream->begin_recording("piece 0"));
//   ... enqueue kernels on *stream: nothing runs, launches are kept with their addresses ...
//   std::unique_ptr<RecordedGraph> graph = TRY(stream->end_recording());
//   TRY(graph->launch(*stream));   // runs them, as often as wanted
//   TRY(stream->synchronize());
//
// Threads: a Device may be used from several threads. A Stream, and everything enqueued on it, belongs to one thread at
// a time. Ownership: objects do not keep the device alive. Destroy graphs before what they use, memory when no stream
// works on it any more, the device last. Errors: kResourceExhausted for memory, kFailedPrecondition for a call that is
// not allowed now (allocation, synchronisation or staging while recording), kDeviceLost if only a restart helps.
// Messages name the call, the object and, if a recording is in the way, that recording.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

struct DeviceProperties {
  std::string type = "cpu";       // the name that its type is registered under: "cpu", "cuda"
  bool on_host = true;            // kernels run on the host's cores and in its memory, and are done when enqueued
  std::string name;               // "AMD EPYC, 2 threads, avx512"
  std::int64_t memory_bytes = 0;  // memory that this process may use in all
  int threads = 0;                // CPU: worker threads of a kernel; CUDA: multiprocessors
  int compute_capability = 0;     // CUDA: 10 · major + minor, 90 on an H200
  bool has_native_bf16 = false;   // matrix units take bfloat16
  std::int64_t block_bytes = 1;   // arenas grow by multiples of it
  // DeviceAddress::raw() is an address that kernels and, on a CPU, the host can dereference
  bool has_pointers = true;
  // False: an arena has all of its memory from the start, so no more should be reserved than is needed.
  bool arenas_grow = true;
  // Bytes of a recorded graph, and of each kernel, copy or fill in it. They are exact on a CPU. A GPU's driver does not
  // report them, so there they are a fit to measurements (docs/cuda-graphs.md).
  std::int64_t graph_bytes = 0;
  std::int64_t graph_node_bytes = 0;
};

// Alignment of every address that a device returns: enough for 16-byte accesses, cache lines and TMA.
inline constexpr std::size_t kDeviceAlignment = 256;

// A place in device memory: the memory's handle, and an offset in bytes from its start. The device decides what a
// handle is. If the device has pointers (CPU, CUDA), the handle is the address of the first byte. Otherwise it names a
// buffer, and only the device's own streams and kernels can access it. Trivially copyable, so that kernels can capture
// it.
struct DeviceAddress {
  std::byte* handle = nullptr;  // null: no memory
  std::size_t offset = 0;

  // Returns the address itself. Only for devices with pointers.
  std::byte* raw() const { return handle + offset; }
  explicit operator bool() const { return handle != nullptr; }
  DeviceAddress& operator+=(std::integral auto bytes) {
    offset += static_cast<std::size_t>(bytes);
    return *this;
  }
  friend DeviceAddress operator+(DeviceAddress address, std::integral auto bytes) { return address += bytes; }
  friend auto operator<=>(const DeviceAddress&, const DeviceAddress&) = default;
};
std::string address_text(DeviceAddress address);  // "0x7f3a40000000+512", for messages

// Device memory, freed on destruction.
class Allocation {
 public:
  virtual ~Allocation() = default;
  DeviceAddress data() const { return {data_}; }
  std::size_t size() const { return size_; }  // bytes

 protected:
  std::byte* data_ = nullptr;  // the handle
  std::size_t size_ = 0;
};

// Host memory that a device can copy from and to directly, freed on destruction.
class HostAllocation {
 public:
  virtual ~HostAllocation() = default;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }  // bytes

 protected:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct ArenaOptions {
  std::size_t reserve_bytes = 0;  // bytes of addresses set aside; grow() takes memory for them
  std::string name;
  // The first grow() takes all reserved bytes as one piece of physical memory, which can be shared with other devices
  // (CUDA: one handle). Has no effect on a CPU.
  bool single_handle = false;
};

// One address range that grows and never moves, because recorded graphs keep addresses into it.
class Arena {
 public:
  virtual ~Arena() = default;
  DeviceAddress base() const { return {base_}; }
  std::size_t size() const { return size_; }          // bytes backed by memory, from base() on
  std::size_t reserved() const { return reserved_; }  // bytes of addresses
  // Makes at least `bytes` usable; never shrinks. kResourceExhausted past reserved(), or if memory is exhausted.
  virtual Status grow(std::size_t bytes) = 0;

 protected:
  std::byte* base_ = nullptr;  // the handle
  std::size_t size_ = 0;
  std::size_t reserved_ = 0;
};

class Stream;

struct GraphStats {
  std::int64_t nodes = 0;  // number of kernels, copies and fills
  // Bytes of the graph object itself; 0 if the device does not report it per graph. (CUDA's driver allocates blocks for
  // many graphs; Device::available_bytes() before and after a ladder of captures shows the sum.)
  std::int64_t bytes = 0;
};

// Recorded launches with their addresses. A replay runs exactly what was enqueued while recording.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  // Enqueues the whole graph on `stream`, which must not be recording.
  virtual Status launch(Stream& stream) = 0;
  virtual GraphStats stats() const = 0;
};

// A point in a stream's order, which other streams and the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status synchronize() = 0;  // the host waits; an event that was never recorded counts as passed
  // Returns the time on the device from `earlier` to this event, in milliseconds. Returns kFailedPrecondition unless
  // both events are of EventKind::kTime, were recorded and have passed.
  virtual Result<double> milliseconds_since(const Event& earlier) const = 0;
};

enum class EventKind : std::uint8_t {
  kOrder,
  kTime,  // records the time too, which costs a little
};

// An ordered queue of work. On a CPU, each call does its work before it returns.
class Stream {
 public:
  virtual ~Stream() = default;

  // Copies between host and device. upload() has read `host` when it returns. download() has filled it when
  // synchronize(), or an event recorded after the download, has passed. Host memory of allocate_host() is read and
  // written while the stream runs instead: neither call waits for the stream, and uploaded memory must not change until
  // the stream has passed the upload. Refused while recording: data that varies from step to step is staged before a
  // graph, not in it.
  virtual Status upload(DeviceAddress device, const void* host, std::size_t bytes) = 0;
  virtual Status download(void* host, DeviceAddress device, std::size_t bytes) = 0;
  // Copies and fills on the device; may be recorded. The two ranges of a copy must not overlap.
  virtual Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) = 0;
  virtual Status fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) = 0;

  // Returns the side stream, whose work runs beside this stream's work; it may be recorded too. Work enqueued on the
  // side stream after fork_side() begins once everything enqueued here before has ended. Work enqueued here after
  // join_side() begins once everything enqueued on the side stream has ended. In between, both run at the same time if
  // the device can: neither may write what the other uses. Each fork must be joined, in a recording before the
  // recording ends. This stream owns the side stream, which takes only kernels, copies and fills. The first call of
  // side() must not be made while recording. By default all work runs in order, on this stream.
  virtual Result<Stream*> side() { return this; }
  virtual Status fork_side() { return ok_status(); }
  virtual Status join_side() { return ok_status(); }

  // Events are refused while this stream records: an event orders graphs and is not part of one.
  virtual Status record(Event& event) = 0;
  virtual Status wait(Event& event) = 0;
  virtual Status synchronize() = 0;  // the host waits for all work enqueued so far

  // Begins a recording. From here on work is kept instead of run, and the device refuses allocation, arena growth, new
  // streams, synchronisation and staging from this thread. A refused call leaves the recording as it was. A destructor
  // cannot refuse: if this thread frees memory meanwhile, end_recording() fails with that memory's name. `what` names
  // the piece in those errors. Recording is exclusive per device: a second one is refused.
  virtual Status begin_recording(std::string what) = 0;
  // Ends the recording. Must be called on the thread that began it. After an error, too, no recording is open.
  virtual Result<std::unique_ptr<RecordedGraph>> end_recording() = 0;
  // Ends a recording and drops it. Call it after an error during the recording.
  virtual void abandon_recording() = 0;
  virtual bool recording() const = 0;
  // Status of the open recording: ok, or why it is void (memory was freed, or a library made a call that capture does
  // not allow). Called after each operator, so that the error can name the operator.
  virtual Status recording_status() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;
  // Allocates device memory. `name` appears in errors and in the memory report. If `bytes` is 0, data() may be null.
  virtual Result<std::unique_ptr<Allocation>> allocate(std::size_t bytes, std::string_view name) = 0;
  // Allocates host memory that the device copies fastest from and to (CUDA: pinned).
  virtual Result<std::unique_ptr<HostAllocation>> allocate_host(std::size_t bytes, std::string_view name) = 0;
  virtual Result<std::unique_ptr<Arena>> create_arena(ArenaOptions options) = 0;
  virtual Result<std::unique_ptr<Stream>> create_stream(std::string name) = 0;
  virtual Result<std::unique_ptr<Event>> create_event(EventKind kind) = 0;
  Result<std::unique_ptr<Event>> create_event() { return create_event(EventKind::kOrder); }
  // Announces that a library will be initialised, or code loaded, for the first time; must be called before it. Refused
  // while recording, because libraries may allocate and synchronise then. `library` names the library in the error.
  virtual Status begin_initialisation(std::string_view library) = 0;
  // Returns the bytes that allocate() could still give, as the system reports them.
  virtual std::int64_t available_bytes() const = 0;
};

}  // namespace tessera
