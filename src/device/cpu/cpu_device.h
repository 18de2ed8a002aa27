// Implements the device contract (device.h) on the CPU. A stream runs each piece of work on the calling thread's worker
// threads before the call returns. A recording keeps launches in a list, and a replay runs the list.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/device/errors.h"
#include "tessera/device/recording.h"

namespace tessera {

// A kernel launch in a recorded graph: a function and its arguments by value. The arguments are addresses and numbers,
// and must be trivially copyable. The memory that they point to must outlive the graph. If a kernel can fail while it
// runs, as a library call or a collective can, it returns Status. Any other kernel returns nothing.
class CpuLaunch {
 public:
  static constexpr std::size_t kMaxArgumentBytes = 248;

  template <class F>
  CpuLaunch(const char* name, const F& kernel) : name_(name), run_(&call<F>) {
    static_assert(std::is_trivially_copyable_v<F>, "a kernel launch captures addresses and numbers by value only");
    static_assert(sizeof(F) <= kMaxArgumentBytes, "too many arguments for one launch: pass a struct in device memory");
    static_assert(alignof(F) <= 16, "an argument of a launch needs too large an alignment");
    std::memcpy(arguments_, &kernel, sizeof(F));
  }
  Status run() const { return run_(arguments_); }
  const char* name() const { return name_; }

 private:
  template <class F>
  static Status call(const std::byte* arguments) {
    const F& kernel = *std::launder(reinterpret_cast<const F*>(arguments));
    if constexpr (std::is_same_v<std::invoke_result_t<const F&>, Status>) {
      return kernel();
    } else {
      kernel();
      return ok_status();
    }
  }

  const char* name_;  // a string literal
  Status (*run_)(const std::byte* arguments);
  alignas(16) std::byte arguments_[kMaxArgumentBytes];
};

class CpuDevice;

class CpuStream : public Stream {
 public:
  CpuStream(CpuDevice& device, std::string name);
  ~CpuStream() override;

  // Runs `kernel()` now and returns its error. While the stream records, adds the kernel to the recording instead.
  // `name` is a string literal.
  template <class F>
  Status launch(const char* name, const F& kernel) {
    return enqueue(CpuLaunch(name, kernel));
  }

  Status upload(DeviceAddress device, const void* host, std::size_t bytes) override;
  Status download(void* host, DeviceAddress device, std::size_t bytes) override;
  Status copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) override;
  Status fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) override;
  Status record(Event& event) override;
  Status wait(Event& event) override;
  Status synchronize() override;
  Status begin_recording(std::string what) override;
  Result<std::unique_ptr<RecordedGraph>> end_recording() override;
  void abandon_recording() override;
  bool recording() const override { return recording_; }
  Status recording_status() const override;

 private:
  friend class CpuGraph;
  Status enqueue(const CpuLaunch& launch);
  // Returns an error if `call` is not allowed now. Every operation of the stream begins with enter(), except launches,
  // begin_recording() and end_recording().
  Status enter(DeviceCall call) const;

  CpuDevice& device_;
  std::string name_;
  bool recording_ = false;
  std::string recording_what_;
  std::vector<CpuLaunch> recorded_;
};

class CpuDevice : public Device {
 public:
  struct Options {
    int threads = 0;  // number of worker threads of a kernel; 0 means one for each usable core
  };
  static constexpr int kMaxThreads = 1024;
  // Creates the device. Returns kInvalidArgument for a thread count outside 0 … kMaxThreads. Without OpenMP there is
  // one thread.
  static Result<std::unique_ptr<CpuDevice>> create(Options options);

  const DeviceProperties& properties() const override { return properties_; }
  // Allocates memory. Returns an error if the total memory of the device would exceed properties().memory_bytes, or if
  // the system has too little memory left. Without this check, a system that overcommits memory would only fail when
  // the memory is used.
  Result<std::unique_ptr<Allocation>> allocate(std::size_t bytes, std::string_view name) override;
  // Allocates ordinary memory, like allocate(), because the memory of the host is the memory of the device.
  Result<std::unique_ptr<HostAllocation>> allocate_host(std::size_t bytes, std::string_view name) override;
  Result<std::unique_ptr<Arena>> create_arena(ArenaOptions options) override;
  Result<std::unique_ptr<Stream>> create_stream(std::string name) override;
  using Device::create_event;
  Result<std::unique_ptr<Event>> create_event(EventKind kind) override;
  Status begin_initialisation(std::string_view library) override {
    return enter(DeviceCall::kInitialiseLibrary, library);
  }
  std::int64_t available_bytes() const override;

 protected:
  // Returns the total size in bytes of all existing allocations and arenas.
  std::int64_t used_bytes() const { return used_bytes_; }
  explicit CpuDevice(DeviceProperties properties) : properties_(std::move(properties)) {}
  static Result<DeviceProperties> read_properties(Options options);

  // Every operation that is allowed at this time calls before() first. If before() returns an error, the operation
  // returns this error. Tests override this function to inject faults.
  virtual Status before(DeviceCall /*call*/, std::string_view /*object*/) { return ok_status(); }
  // A replay calls this function before its kernels run. If the result is true, the kernels do not run, but launch()
  // still succeeds. Tests override this function to inject faults.
  virtual bool loses_replay() { return false; }

 private:
  friend class CpuAllocation;
  friend class CpuArena;
  friend class CpuEvent;
  friend class CpuGraph;
  friend class CpuStream;

  // Returns an error for calls that the recording thread may not make. Otherwise calls before().
  Status enter(DeviceCall call, std::string_view object);

  // Counts `bytes` against the device's limit until give_back(). Does not allocate.
  Status claim(DeviceCall call, std::string_view object, std::size_t bytes);
  void give_back(std::size_t bytes) { used_bytes_ -= static_cast<std::int64_t>(bytes); }

  DeviceProperties properties_;
  std::atomic<std::int64_t> used_bytes_{0};
  std::atomic<int> events_{0};
  OpenRecording recording_;
};

// Returns `stream` as a CpuStream, for a CPU kernel. Precondition: a CpuDevice made the stream.
inline CpuStream& as_cpu(Stream& stream) { return static_cast<CpuStream&>(stream); }

}  // namespace tessera
