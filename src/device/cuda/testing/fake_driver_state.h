// The state of FakeDriver, and the code with which each of its functions counts its calls and injects faults.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/device/cuda/testing/fake_driver.h"

namespace tessera {

inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

using Work = std::function<void()>;

struct FakeGraph {
  std::vector<Work> nodes;
};

struct FakeStream {
  std::deque<Work> queue;
  std::size_t done = 0;  // number of items that have run; done + queue.size() were enqueued
  bool capturing = false;
  bool capture_valid = false;
  std::thread::id capture_thread;
  FakeGraph captured;
  std::shared_ptr<FakeStream> origin;  // the stream whose capture this stream takes part in, or null
  std::size_t unjoined = 0;            // number of items captured since the origin last waited for this stream
};

struct FakeEvent {
  std::shared_ptr<FakeStream> stream;  // null if the event was never recorded
  // The event has passed when `at` of the stream's items are done. If the event was recorded in a capture, `at` is
  // instead the value that the stream's `unjoined` had when the event was recorded.
  std::size_t at = 0;
  bool takes_time = false;
  std::shared_ptr<FakeStream> capture;  // the capture in which the event was recorded, or null
};

struct FakePhysical {
  std::size_t bytes = 0;
  bool released = false;
  CUdeviceptr mapped_at = 0;
};

inline thread_local CUcontext current_context = nullptr;
inline thread_local bool capture_relaxed = false;

template <class T>
T handle_of(std::size_t number) {
  return reinterpret_cast<T>(number);
}

struct FakeDriver::State {
  FakeDriverOptions options;
  std::recursive_mutex mutex;
  std::map<std::string, int> counts;
  std::map<std::string, std::map<int, CUresult>> plan;  // for each function, a map from call number to result
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
  std::set<CUmodule> modules;
  int retains = 0;
  CUcontext context = nullptr;

  // Runs the stream's items in order until `count` items are done, counted from the first item ever enqueued.
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
    if (found->second->origin != nullptr) ++found->second->unjoined;
    FakeStream& stream = *capture_of(found->second);
    if (!stream.capturing) {
      stream.queue.push_back(std::move(work));
      return CUDA_SUCCESS;
    }
    if (!stream.capture_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream.captured.nodes.push_back(std::move(work));
    return CUDA_SUCCESS;
  }

  // Returns the stream that began the capture in which `stream` takes part. Returns `stream` itself if it did not join
  // another stream's capture.
  static std::shared_ptr<FakeStream> capture_of(const std::shared_ptr<FakeStream>& stream) {
    return stream->origin == nullptr ? stream : stream->origin;
  }

  // Waits for an event that was recorded in a capture. The waiting stream takes part in that capture from now on. The
  // stream on which the event was recorded counts as joined if two conditions are true: the waiting stream is the
  // capture's origin, and no work was captured on the event's stream after the event.
  static CUresult wait_in_capture(const std::shared_ptr<FakeStream>& stream, const FakeEvent& event) {
    if (!event.capture->capturing) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream != event.capture)
      stream->origin = event.capture;
    else if (event.stream != stream && event.at == event.stream->unjoined)
      event.stream->unjoined = 0;
    return CUDA_SUCCESS;
  }

  // Ends the capture that `stream` began. Returns whether all streams that took part in the capture were joined.
  bool end_joins(const std::shared_ptr<FakeStream>& stream) {
    bool joined = true;
    for (auto& [handle, other] : streams) {
      if (other->origin != stream) continue;
      joined = joined && other->unjoined == 0;
      other->origin = nullptr;
      other->unjoined = 0;
    }
    return joined;
  }

  // Invalidates this thread's capture, if it has one and the capture mode is not relaxed. Returns whether a capture was
  // invalidated.
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

// The existing fake driver, or null if there is none.
inline FakeDriver* the_fake = nullptr;

// The driver's functions. Each function counts its calls. It then returns the planned fault or, if there is none, does
// its work.
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

  // Counts the call. Returns the planned fault if there is one. Otherwise calls `body` with the locked state.
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
  // Like with_context(), but if the thread is capturing, returns an error and invalidates the capture.
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
  static void set_modules(Driver& t);
};

}  // namespace tessera
