#include "tessera/device/cuda/testing/fake_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace tessera {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

using Work = std::function<void()>;

struct FakeGraph {
  std::vector<Work> nodes;
};

struct FakeStream {
  std::deque<Work> queue;
  std::size_t done = 0;  // items run so far; done + queue.size() were enqueued
  bool capturing = false;
  bool capture_valid = false;
  std::thread::id capture_thread;
  FakeGraph captured;
};

struct FakeEvent {
  std::shared_ptr<FakeStream> stream;  // null: never recorded
  std::size_t at = 0;                  // passed when this many items are done
  bool takes_time = false;
};

struct FakePhysical {
  std::size_t bytes = 0;
  bool released = false;
  CUdeviceptr mapped_at = 0;
};

thread_local CUcontext current_context = nullptr;
thread_local bool capture_relaxed = false;

template <class T>
T handle_of(std::size_t number) {
  return reinterpret_cast<T>(number);
}

}  // namespace

struct FakeDriver::State {
  FakeDriverOptions options;
  std::recursive_mutex mutex;
  std::map<std::string, int> counts;
  std::map<std::string, std::map<int, CUresult>> plan;  // function → call number → result
  int faults = 0;

  std::size_t used_bytes = 0;
  std::size_t last_handle = 0x1000;
  std::map<CUdeviceptr, std::size_t> memory;
  std::map<void*, std::size_t> pinned;
  std::map<CUdeviceptr, std::size_t> reserved;
  std::map<CUmemGenericAllocationHandle, FakePhysical> physical;
  std::map<CUstream, std::shared_ptr<FakeStream>> streams;
  std::map<CUevent, FakeEvent> events;
  std::map<CUgraph, FakeGraph> graphs;
  std::map<CUgraphExec, FakeGraph> execs;
  int retains = 0;
  CUcontext context = nullptr;

  // Runs the first `count` items that were ever enqueued.
  static void run_to(FakeStream& stream, std::size_t count) {
    while (stream.done < count) {
      const Work work = std::move(stream.queue.front());
      stream.queue.pop_front();
      ++stream.done;
      work();
    }
  }
  static void run_all(FakeStream& stream) { run_to(stream, stream.done + stream.queue.size()); }

  void run_everything() {
    for (auto& [handle, stream] : streams) run_all(*stream);
  }

  CUresult enqueue(CUstream handle, Work work) {
    const auto found = streams.find(handle);
    if (found == streams.end()) return CUDA_ERROR_INVALID_HANDLE;
    FakeStream& stream = *found->second;
    if (!stream.capturing) {
      stream.queue.push_back(std::move(work));
      return CUDA_SUCCESS;
    }
    if (!stream.capture_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream.captured.nodes.push_back(std::move(work));
    return CUDA_SUCCESS;
  }

  // Makes this thread's capture invalid, if it has one.
  bool breaks_capture() {
    if (capture_relaxed) return false;
    for (auto& [handle, stream] : streams) {
      if (!stream->capturing || stream->capture_thread != std::this_thread::get_id()) continue;
      stream->capture_valid = false;
      return true;
    }
    return false;
  }

  bool is_pinned(const void* data) const {
    return std::any_of(pinned.begin(), pinned.end(), [&](const auto& range) {
      return data >= range.first && data < static_cast<std::byte*>(range.first) + range.second;
    });
  }

  void forget(CUmemGenericAllocationHandle handle) {
    const FakePhysical& physical_memory = physical.at(handle);
    if (!physical_memory.released || physical_memory.mapped_at != 0) return;
    used_bytes -= physical_memory.bytes;
    physical.erase(handle);
  }
};

namespace {
FakeDriver* the_fake = nullptr;
}

// The driver's functions. Each counts itself, returns the fault that is planned, and then does its work.
struct FakeFunctions {
  static FakeDriver::State& state() { return *the_fake->state_; }

  static CUresult count(const char* function) {
    FakeDriver::State& s = state();
    const int nth = ++s.counts[function];
    const auto planned = s.plan.find(function);
    if (planned == s.plan.end() || !planned->second.contains(nth)) return CUDA_SUCCESS;
    ++s.faults;
    return planned->second.at(nth);
  }

  // `body` is called with the state, locked.
  template <class F>
  static CUresult call(const char* function, const F& body) {
    std::lock_guard lock(state().mutex);
    const CUresult planned = count(function);
    return planned == CUDA_SUCCESS ? body(state()) : planned;
  }
  template <class F>
  static CUresult with_context(const char* function, const F& body) {
    return call(function, [&](FakeDriver::State& s) {
      return current_context == nullptr || current_context != s.context ? CUDA_ERROR_INVALID_CONTEXT : body(s);
    });
  }
  // Refused to a thread that captures, whose capture it ends.
  template <class F>
  static CUresult unsafe(const char* function, const F& body) {
    return with_context(function, [&](FakeDriver::State& s) {
      return s.breaks_capture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : body(s);
    });
  }

  static void set_device(Driver& t);
  static void set_memory(Driver& t);
  static void set_virtual_memory(Driver& t);
  static void set_work(Driver& t);
  static void set_streams(Driver& t);
  static void set_capture(Driver& t);
};

void FakeFunctions::set_device(Driver& t) {
  t.cuDriverGetVersion = [](int* version) {
    return call("cuDriverGetVersion", [&](auto& s) { return *version = s.options.version, CUDA_SUCCESS; });
  };
  t.cuGetErrorName = [](CUresult result, const char** name) {
    static thread_local std::string text;
    text = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_" + std::to_string(result);
    *name = text.c_str();
    return CUDA_SUCCESS;
  };
  t.cuGetErrorString = [](CUresult, const char** text) { return *text = "what the driver says of it", CUDA_SUCCESS; };
  t.cuDeviceGetCount = [](int* devices) {
    return call("cuDeviceGetCount", [&](auto& s) { return *devices = s.options.devices, CUDA_SUCCESS; });
  };
  t.cuDeviceGet = [](CUdevice* device, int ordinal) {
    return call("cuDeviceGet", [&](auto&) { return *device = ordinal, CUDA_SUCCESS; });
  };
  t.cuDeviceGetName = [](char* name, int bytes, CUdevice) {
    return call("cuDeviceGetName",
                [&](auto&) { return std::strncpy(name, "Fake GPU", static_cast<std::size_t>(bytes)), CUDA_SUCCESS; });
  };
  t.cuDeviceTotalMem = [](std::size_t* bytes, CUdevice) {
    return call("cuDeviceTotalMem", [&](auto& s) { return *bytes = s.options.memory_bytes, CUDA_SUCCESS; });
  };
  t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    return call("cuDeviceGetAttribute", [&](auto& s) {
      switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = s.options.compute_capability / 10; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = s.options.compute_capability % 10; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 7; break;
        default: *value = 1;
      }
      return CUDA_SUCCESS;
    });
  };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return call("cuDevicePrimaryCtxRetain", [&](auto& s) {
      if (s.retains++ == 0) s.context = handle_of<CUcontext>(++s.last_handle);
      return *context = s.context, CUDA_SUCCESS;
    });
  };
  t.cuDevicePrimaryCtxRelease = [](CUdevice) {
    return call("cuDevicePrimaryCtxRelease", [&](auto& s) {
      if (--s.retains == 0) s.context = nullptr;
      return CUDA_SUCCESS;
    });
  };
  t.cuCtxSetCurrent = [](CUcontext context) {
    return call("cuCtxSetCurrent", [&](auto&) { return current_context = context, CUDA_SUCCESS; });
  };
  t.cuCtxSynchronize = [] {
    return unsafe("cuCtxSynchronize", [&](auto& s) { return s.run_everything(), CUDA_SUCCESS; });
  };
}

void FakeFunctions::set_memory(Driver& t) {
  t.cuMemGetInfo = [](std::size_t* available, std::size_t* total) {
    return unsafe("cuMemGetInfo", [&](auto& s) {
      *total = s.options.memory_bytes;
      *available = s.options.memory_bytes - s.used_bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemAlloc = [](CUdeviceptr* address, std::size_t bytes) {
    return unsafe("cuMemAlloc", [&](auto& s) {
      if (bytes > s.options.memory_bytes - s.used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
      *address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
      s.used_bytes += bytes;
      s.memory[*address] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemFree = [](CUdeviceptr address) {
    return unsafe("cuMemFree", [&](auto& s) {
      if (!s.memory.contains(address)) return CUDA_ERROR_INVALID_VALUE;
      s.run_everything();
      s.used_bytes -= s.memory[address];
      s.memory.erase(address);
      std::free(pointer_of(address));
      return CUDA_SUCCESS;
    });
  };
  t.cuMemHostAlloc = [](void** data, std::size_t bytes, unsigned) {
    return unsafe("cuMemHostAlloc", [&](auto& s) {
      *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
      s.pinned[*data] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemFreeHost = [](void* data) {
    return unsafe("cuMemFreeHost", [&](auto& s) {
      if (s.pinned.erase(data) == 0) return CUDA_ERROR_INVALID_VALUE;
      s.run_everything();
      std::free(data);
      return CUDA_SUCCESS;
    });
  };
}

void FakeFunctions::set_virtual_memory(Driver& t) {
  t.cuMemGetAllocationGranularity = [](std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
    return call("cuMemGetAllocationGranularity", [&](auto&) { return *bytes = kGranularity, CUDA_SUCCESS; });
  };
  t.cuMemAddressReserve = [](CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
    return unsafe("cuMemAddressReserve", [&](auto& s) {
      void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
      *address = reinterpret_cast<CUdeviceptr>(data);
      s.reserved[*address] = bytes;
      return CUDA_SUCCESS;
    });
  };
  t.cuMemAddressFree = [](CUdeviceptr address, std::size_t bytes) {
    return unsafe("cuMemAddressFree", [&](auto& s) {
      if (s.reserved.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
      return munmap(pointer_of(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  };
  t.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
    return unsafe("cuMemCreate", [&](auto& s) {
      if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
      if (properties->allocFlags.gpuDirectRDMACapable != 0 && !s.options.takes_rdma) return CUDA_ERROR_NOT_SUPPORTED;
      if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && !s.options.takes_file_descriptors) {
        return CUDA_ERROR_NOT_PERMITTED;
      }
      if (bytes > s.options.memory_bytes - s.used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
      s.used_bytes += bytes;
      s.physical[*handle = ++s.last_handle] = {.bytes = bytes};
      return CUDA_SUCCESS;
    });
  };
  t.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    return unsafe("cuMemRelease", [&](auto& s) {
      s.physical.at(handle).released = true;
      return s.forget(handle), CUDA_SUCCESS;
    });
  };
  t.cuMemMap = [](CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
    return unsafe("cuMemMap", [&](auto& s) {
      if (s.physical.at(handle).bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
      return s.physical.at(handle).mapped_at = address, CUDA_SUCCESS;
    });
  };
  t.cuMemSetAccess = [](CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc*, std::size_t) {
    return unsafe("cuMemSetAccess", [&](auto&) {
      const bool opened = mprotect(pointer_of(address), bytes, PROT_READ | PROT_WRITE) == 0;
      return opened ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  };
  t.cuMemUnmap = [](CUdeviceptr address, std::size_t bytes) {
    return unsafe("cuMemUnmap", [&](auto& s) {
      s.run_everything();
      for (auto& [handle, physical] : s.physical) {
        if (physical.mapped_at != address || physical.bytes != bytes) continue;
        physical.mapped_at = 0;
        (void)mprotect(pointer_of(address), bytes, PROT_NONE);
        return s.forget(handle), CUDA_SUCCESS;
      }
      return CUDA_ERROR_INVALID_VALUE;
    });
  };
}

void FakeFunctions::set_work(Driver& t) {
  t.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return with_context("cuMemcpyHtoDAsync", [&](auto& s) {
      if (!s.is_pinned(from)) return CUDA_ERROR_INVALID_VALUE;  // would wait for the stream
      return s.enqueue(stream, [=] { std::memcpy(pointer_of(to), from, bytes); });
    });
  };
  t.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return with_context("cuMemcpyDtoHAsync", [&](auto& s) {
      const CUresult result = s.enqueue(stream, [=] { std::memcpy(to, pointer_of(from), bytes); });
      if (result == CUDA_SUCCESS && !s.is_pinned(to)) s.run_all(*s.streams.at(stream));
      return result;
    });
  };
  t.cuMemcpyDtoDAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    return with_context("cuMemcpyDtoDAsync", [&](auto& s) {
      return s.enqueue(stream, [=] { std::memcpy(pointer_of(to), pointer_of(from), bytes); });
    });
  };
  t.cuMemsetD8Async = [](CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
    return with_context("cuMemsetD8Async",
                        [&](auto& s) { return s.enqueue(stream, [=] { std::memset(pointer_of(to), value, bytes); }); });
  };
}

void FakeFunctions::set_streams(Driver& t) {
  t.cuStreamCreate = [](CUstream* stream, unsigned) {
    return unsafe("cuStreamCreate", [&](auto& s) {
      *stream = handle_of<CUstream>(++s.last_handle);
      return s.streams[*stream] = std::make_shared<FakeStream>(), CUDA_SUCCESS;
    });
  };
  t.cuStreamDestroy = [](CUstream stream) {
    return unsafe("cuStreamDestroy", [&](auto& s) {
      s.run_all(*s.streams.at(stream));
      return s.streams.erase(stream) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
  };
  t.cuStreamSynchronize = [](CUstream stream) {
    return unsafe("cuStreamSynchronize", [&](auto& s) { return s.run_all(*s.streams.at(stream)), CUDA_SUCCESS; });
  };
  t.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    return with_context("cuStreamWaitEvent", [&](auto& s) {
      const FakeEvent waited = s.events.at(event);
      if (waited.stream == nullptr) return CUDA_SUCCESS;
      return s.enqueue(stream, [waited] { FakeDriver::State::run_to(*waited.stream, waited.at); });
    });
  };
  t.cuEventCreate = [](CUevent* event, unsigned flags) {
    return with_context("cuEventCreate", [&](auto& s) {
      *event = handle_of<CUevent>(++s.last_handle);
      s.events[*event].takes_time = (flags & CU_EVENT_DISABLE_TIMING) == 0;
      return CUDA_SUCCESS;
    });
  };
  t.cuEventDestroy = [](CUevent event) {
    return with_context("cuEventDestroy",
                        [&](auto& s) { return s.events.erase(event) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; });
  };
  t.cuEventRecord = [](CUevent event, CUstream stream) {
    return with_context("cuEventRecord", [&](auto& s) {
      const std::shared_ptr<FakeStream> on = s.streams.at(stream);
      s.events.at(event).stream = on;
      s.events.at(event).at = on->done + on->queue.size();
      return CUDA_SUCCESS;
    });
  };
  t.cuEventElapsedTime = [](float* milliseconds, CUevent from, CUevent to) {
    return with_context("cuEventElapsedTime", [&](auto& s) {
      for (const CUevent handle : {from, to}) {
        const FakeEvent& event = s.events.at(handle);
        if (!event.takes_time || event.stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (event.stream->done < event.at) return CUDA_ERROR_NOT_READY;
      }
      return *milliseconds = 0.5F, CUDA_SUCCESS;
    });
  };
  t.cuEventSynchronize = [](CUevent event) {
    return unsafe("cuEventSynchronize", [&](auto& s) {
      const FakeEvent waited = s.events.at(event);
      if (waited.stream != nullptr) s.run_to(*waited.stream, waited.at);
      return CUDA_SUCCESS;
    });
  };
}

void FakeFunctions::set_capture(Driver& t) {
  t.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    return call("cuThreadExchangeStreamCaptureMode", [&](auto&) {
      const bool relaxed = *mode == CU_STREAM_CAPTURE_MODE_RELAXED;
      *mode = capture_relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
      return capture_relaxed = relaxed, CUDA_SUCCESS;
    });
  };
  t.cuStreamBeginCapture = [](CUstream stream, CUstreamCaptureMode mode) {
    return with_context("cuStreamBeginCapture", [&](auto& s) {
      FakeStream& on = *s.streams.at(stream);
      if (on.capturing || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return CUDA_ERROR_ILLEGAL_STATE;
      on.capturing = on.capture_valid = true;
      on.capture_thread = std::this_thread::get_id();
      return on.captured = {}, CUDA_SUCCESS;
    });
  };
  t.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    return with_context("cuStreamIsCapturing", [&](auto& s) {
      const FakeStream& on = *s.streams.at(stream);
      *status = !on.capturing      ? CU_STREAM_CAPTURE_STATUS_NONE
                : on.capture_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                   : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
      return CUDA_SUCCESS;
    });
  };
  t.cuStreamEndCapture = [](CUstream stream, CUgraph* graph) {
    // Ends the capture even where it fails.
    std::lock_guard lock(state().mutex);
    FakeStream& on = *state().streams.at(stream);
    if (on.capturing && on.capture_thread != std::this_thread::get_id()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    on.capturing = false;
    return with_context("cuStreamEndCapture", [&](auto& s) {
      *graph = nullptr;
      if (!on.capture_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      *graph = handle_of<CUgraph>(++s.last_handle);
      return s.graphs[*graph] = std::move(on.captured), CUDA_SUCCESS;
    });
  };
  t.cuDeviceGraphMemTrim = [](CUdevice) { return call("cuDeviceGraphMemTrim", [](auto&) { return CUDA_SUCCESS; }); };
  t.cuGraphGetNodes = [](CUgraph graph, CUgraphNode*, std::size_t* nodes) {
    return call("cuGraphGetNodes", [&](auto& s) { return *nodes = s.graphs.at(graph).nodes.size(), CUDA_SUCCESS; });
  };
  t.cuGraphInstantiate = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    return with_context("cuGraphInstantiate", [&](auto& s) {
      *exec = handle_of<CUgraphExec>(++s.last_handle);
      return s.execs[*exec] = s.graphs.at(graph), CUDA_SUCCESS;
    });
  };
  t.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    return with_context("cuGraphLaunch", [&](auto& s) {
      CUresult result = CUDA_SUCCESS;
      for (const Work& node : s.execs.at(exec).nodes) {
        if (result == CUDA_SUCCESS) result = s.enqueue(stream, node);
      }
      return result;
    });
  };
  t.cuGraphDestroy = [](CUgraph graph) {
    return call("cuGraphDestroy",
                [&](auto& s) { return s.graphs.erase(graph) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
  };
  t.cuGraphExecDestroy = [](CUgraphExec exec) {
    return call("cuGraphExecDestroy",
                [&](auto& s) { return s.execs.erase(exec) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
  };
}

FakeDriver::FakeDriver(FakeDriverOptions options) : state_(std::make_unique<State>()) {
  the_fake = this;
  state_->options = options;
// What is not written out below has nothing to do but count.
#define TESSERA_FAKE_FUNCTION(name) \
  table_.name = [](auto...) { return FakeFunctions::call(#name, [](auto&) { return CUDA_SUCCESS; }); };
  TESSERA_DRIVER_FUNCTIONS(TESSERA_FAKE_FUNCTION)
#undef TESSERA_FAKE_FUNCTION
  FakeFunctions::set_device(table_);
  FakeFunctions::set_memory(table_);
  FakeFunctions::set_virtual_memory(table_);
  FakeFunctions::set_work(table_);
  FakeFunctions::set_streams(table_);
  FakeFunctions::set_capture(table_);
}

FakeDriver::~FakeDriver() { the_fake = nullptr; }

void FakeDriver::fail(const std::string& function, int nth, CUresult result) {
  std::lock_guard lock(state_->mutex);
  state_->plan[function][state_->counts[function] + nth] = result;
}

int FakeDriver::calls(const std::string& function) const {
  std::lock_guard lock(state_->mutex);
  if (!function.empty()) return state_->counts[function];
  int sum = 0;
  for (const auto& [name, count] : state_->counts) sum += count;
  return sum;
}

int FakeDriver::faults() const {
  std::lock_guard lock(state_->mutex);
  return state_->faults;
}

int FakeDriver::live_objects() const {
  std::lock_guard lock(state_->mutex);
  const State& s = *state_;
  return static_cast<int>(s.memory.size() + s.pinned.size() + s.reserved.size() + s.physical.size() + s.streams.size() +
                          s.events.size() + s.graphs.size() + s.execs.size()) +
         s.retains;
}

}  // namespace tessera
