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
// a time. Ownership: objects do not keep the device alive. Destroy graphs before the memory that they use. Destroy
// memory after all streams have finished with it, and the device last. Errors: kResourceExhausted for a lack of memory,
// kFailedPrecondition for a call that is not allowed now (allocation, synchronisation or staging while recording),
// kDeviceLost if the process must be restarted. Messages name the call, the object and, if a recording is the reason,
// that recording.
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
  std::string type = "cpu";  // the name under which the device's type is registered, such as "cpu" or "cuda"
  // Whether kernels run on the host's cores and memory. If true, a kernel is done when the call that enqueues it
  // returns.
  bool on_host = true;
  std::string name;               // for example "AMD EPYC, 2 threads, avx512"
  std::int64_t memory_bytes = 0;  // all memory that this process may use
  int threads = 0;                // on a CPU, worker threads of a kernel; with CUDA, multiprocessors
  int compute_capability = 0;     // with CUDA, 10 · major + minor, such as 90 on an H200
  bool has_native_bf16 = false;   // whether matrix units support bfloat16
  std::int64_t block_bytes = 1;   // arenas grow by multiples of this size
  // Whether DeviceAddress::raw() is a pointer that kernels and, on a CPU, the host can dereference.
  bool has_pointers = true;
  // Whether arenas get memory only through grow(). If false, an arena has all of its memory from the start, so callers
  // should reserve only what they need.
  bool arenas_grow = true;
  // The size in bytes of a recorded graph, and of each kernel, copy or fill in the graph. The sizes are exact on a CPU.
  // A GPU's driver does not report them, so on a GPU they are estimates from measurements (docs/cuda-graphs.md).
  std::int64_t graph_bytes = 0;
  std::int64_t graph_node_bytes = 0;
};

// The alignment of every address that a device returns. It suffices for 16-byte accesses, cache lines and TMA.
inline constexpr std::size_t kDeviceAlignment = 256;

// A place in device memory: a handle of the memory, and an offset in bytes from the memory's start. The device defines
// the handle. If the device has pointers (CPU, CUDA), the handle is the address of the first byte. Otherwise the handle
// identifies a buffer that only the device's own streams and kernels can access. The type is trivially copyable, so
// that kernels can capture it.
struct DeviceAddress {
  std::byte* handle = nullptr;  // null if there is no memory
  std::size_t offset = 0;

  // Returns the address. Precondition: the device has pointers.
  std::byte* raw() const { return handle + offset; }
  explicit operator bool() const { return handle != nullptr; }
  DeviceAddress& operator+=(std::integral auto bytes) {
    offset += static_cast<std::size_t>(bytes);
    return *this;
  }
  friend DeviceAddress operator+(DeviceAddress address, std::integral auto bytes) { return address += bytes; }
  friend auto operator<=>(const DeviceAddress&, const DeviceAddress&) = default;
};
std::string address_text(DeviceAddress address);  // for example "0x7f3a40000000+512", for messages

// Device memory. The destructor frees it.
class Allocation {
 public:
  virtual ~Allocation() = default;
  DeviceAddress data() const { return {data_}; }
  std::size_t size() const { return size_; }  // in bytes

 protected:
  std::byte* data_ = nullptr;  // the handle
  std::size_t size_ = 0;
};

// Host memory that a device can copy from and to directly. The destructor frees it.
class HostAllocation {
 public:
  virtual ~HostAllocation() = default;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }  // in bytes

 protected:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct ArenaOptions {
  std::size_t reserve_bytes = 0;  // number of reserved addresses in bytes; grow() allocates memory for them
  std::string name;
  // If true, the first grow() allocates all reserved bytes as one piece of physical memory, which can be shared with
  // other devices (CUDA: one handle). Has no effect on a CPU.
  bool single_handle = false;
};

// An address range that grows and never moves, because recorded graphs contain addresses in it.
class Arena {
 public:
  virtual ~Arena() = default;
  DeviceAddress base() const { return {base_}; }
  std::size_t size() const { return size_; }          // bytes backed by memory, from base() on
  std::size_t reserved() const { return reserved_; }  // bytes of addresses
  // Makes at least the first `bytes` bytes usable. An arena never shrinks. Returns kResourceExhausted if `bytes`
  // exceeds reserved() or if memory runs out.
  virtual Status grow(std::size_t bytes) = 0;

 protected:
  std::byte* base_ = nullptr;  // the handle
  std::size_t size_ = 0;
  std::size_t reserved_ = 0;
};

class Stream;

struct GraphStats {
  std::int64_t nodes = 0;  // number of kernels, copies and fills
  // The size in bytes of the graph object itself, or 0 if the device does not report it for each graph. CUDA's driver
  // allocates memory in blocks for many graphs, so it cannot say how much one graph takes. Device::available_bytes()
  // before and after many captures shows how much all of them take.
  std::int64_t bytes = 0;
};

// Recorded launches with their addresses. A replay runs exactly the work that was enqueued while recording.
class RecordedGraph {
 public:
  virtual ~RecordedGraph() = default;
  // Enqueues the whole graph on `stream`, which must not be recording.
  virtual Status launch(Stream& stream) = 0;
  virtual GraphStats stats() const = 0;
};

// A point in the work of a stream, for which other streams and the host can wait.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status synchronize() = 0;  // blocks the host until the event has passed; an unrecorded event counts as passed
  // Returns the time on the device from `earlier` to this event, in milliseconds. Returns kFailedPrecondition unless
  // both events are of EventKind::kTime, were recorded, and have passed.
  virtual Result<double> milliseconds_since(const Event& earlier) const = 0;
};

enum class EventKind : std::uint8_t {
  kOrder,
  kTime,  // also records the time, which costs a little
};

// An ordered queue of work. On a CPU, each call completes its work before it returns.
class Stream {
 public:
  virtual ~Stream() = default;

  // Copy between host and device. If `host` is memory of allocate_host(), neither upload() nor download() waits: the
  // stream accesses `host` when it reaches the copy, so uploaded memory must not change before that. For any other
  // memory, upload() has read `host` when it returns. download() has filled `host` when synchronize() returns, or when
  // an event passes that was recorded after the download. Both calls return an error while the stream records, because
  // data that varies from step to step must be staged before the graph runs.
  virtual Status upload(DeviceAddress device, const void* host, std::size_t bytes) = 0;
  virtual Status download(void* host, DeviceAddress device, std::size_t bytes) = 0;
  // Copy and fill device memory. Both calls may be recorded. The two ranges of a copy must not overlap.
  virtual Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) = 0;
  // Copies `rows` ranges of `bytes` each. At `to` and at `from`, a range begins `pitch` bytes after the one before it.
  // The call may be recorded. No two ranges may overlap. Preconditions: bytes <= pitch and rows >= 0. The default
  // implementation calls copy() for each range. A GPU copies all ranges with one call, because one call costs a GPU as
  // much time as copying some megabytes.
  virtual Status copy_rows(DeviceAddress to, DeviceAddress from, std::size_t bytes, std::int64_t pitch,
                           std::int64_t rows);
  virtual Status fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) = 0;

  // side() returns the side stream, whose work runs concurrently with this stream's work. Side work may be recorded
  // too. Work that is enqueued on the side stream after fork_side() waits for all work that was enqueued on this stream
  // before fork_side(). Work that is enqueued on this stream after join_side() waits for all work that was enqueued on
  // the side stream before join_side(). Between fork and join, both streams may run at the same time, so neither stream
  // may write memory that the other uses. Each fork must be joined. A fork in a recording must be joined before the
  // recording ends. This stream owns the side stream, which takes only kernels, copies and fills. The first call of
  // side() must not be made while recording. The default implementation runs all work in order on this stream.
  virtual Result<Stream*> side() { return this; }
  virtual Status fork_side() { return ok_status(); }
  virtual Status join_side() { return ok_status(); }

  // Record an event, and wait for an event. Both calls return an error while this stream records, because events order
  // whole graphs and cannot be part of a graph.
  virtual Status record(Event& event) = 0;
  virtual Status wait(Event& event) = 0;
  virtual Status synchronize() = 0;  // blocks the host until all work enqueued so far has ended

  // Begins a recording. From now on, work on this stream is added to the recording and does not run. If this thread
  // calls a function that allocates, grows an arena, creates a stream, synchronises or stages data, the call returns an
  // error. These errors leave the recording intact. A destructor cannot return an error, so if this thread frees memory
  // during the recording, end_recording() returns an error that names this memory. `what` names the recording in
  // errors. A device can have only one open recording. A second begin_recording() returns an error.
  virtual Status begin_recording(std::string what) = 0;
  // Ends the recording, even if this function returns an error. Call it on the thread that began the recording.
  virtual Result<std::unique_ptr<RecordedGraph>> end_recording() = 0;
  // Ends a recording and discards it. Call it after an error during the recording.
  virtual void abandon_recording() = 0;
  virtual bool recording() const = 0;
  // Returns ok if the open recording is valid. Otherwise returns the reason: memory was freed, or a library made a call
  // that capture does not allow. Callers check this status after each operator, so that the error can name the
  // operator.
  virtual Status recording_status() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceProperties& properties() const = 0;
  // Allocates device memory. `name` appears in errors and in the memory report. If `bytes` is 0, data() may be null.
  virtual Result<std::unique_ptr<Allocation>> allocate(std::size_t bytes, std::string_view name) = 0;
  // Allocates host memory that the device copies from and to at the highest rate (CUDA: pinned).
  virtual Result<std::unique_ptr<HostAllocation>> allocate_host(std::size_t bytes, std::string_view name) = 0;
  virtual Result<std::unique_ptr<Arena>> create_arena(ArenaOptions options) = 0;
  virtual Result<std::unique_ptr<Stream>> create_stream(std::string name) = 0;
  virtual Result<std::unique_ptr<Event>> create_event(EventKind kind) = 0;
  Result<std::unique_ptr<Event>> create_event() { return create_event(EventKind::kOrder); }
  // Call begin_initialisation() before a library is first initialised, and before code is loaded. Returns an error
  // while a stream records, because an initialisation may allocate and synchronise. The error names `library`.
  virtual Status begin_initialisation(std::string_view library) = 0;
  // Returns the number of bytes that allocate() could still provide, as the system reports it.
  virtual std::int64_t available_bytes() const = 0;
};

}  // namespace tessera
