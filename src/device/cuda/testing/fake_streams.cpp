// Implements the fake driver's functions for ordered work: copies, streams, events, captures and graphs.
#include <algorithm>
#include <cstring>

#include "tessera/device/cuda/testing/fake_driver_state.h"

namespace tessera {

void FakeFunctions::set_work(Driver& t) {
  t.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    return with_context("cuMemcpyHtoDAsync", [&](auto& s) {
      // A copy from ordinary memory is an error here, because the real copy would wait for the stream.
      if (!s.is_pinned(from)) return CUDA_ERROR_INVALID_VALUE;
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
  t.cuMemcpy2DAsync = [](const CUDA_MEMCPY2D* rows, CUstream stream) {
    return with_context("cuMemcpy2DAsync", [&](auto& s) {
      const bool on_device = rows->srcMemoryType == CU_MEMORYTYPE_DEVICE && rows->dstMemoryType == CU_MEMORYTYPE_DEVICE;
      const std::size_t pitch = std::max(rows->srcPitch, rows->dstPitch);
      if (!on_device || pitch > FakeDriver::kLargestPitch || rows->WidthInBytes > pitch)
        return CUDA_ERROR_INVALID_VALUE;
      return s.enqueue(stream, [copy = *rows] {
        for (std::size_t row = 0; row < copy.Height; ++row)
          std::memcpy(pointer_of(copy.dstDevice + row * copy.dstPitch),
                      pointer_of(copy.srcDevice + row * copy.srcPitch), copy.WidthInBytes);
      });
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
  t.cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    return unsafe("cuStreamCreateWithPriority", [&](auto& s) {
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
      if (waited.capture != nullptr) return s.wait_in_capture(s.streams.at(stream), waited);
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
      const std::shared_ptr<FakeStream> capture = s.capture_of(on);
      s.events.at(event).capture = capture->capturing ? capture : nullptr;
      s.events.at(event).at = capture->capturing ? on->unjoined : on->done + on->queue.size();
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
    // The capture ends even if the function fails.
    std::lock_guard lock(state().mutex);
    FakeStream& on = *state().streams.at(stream);
    if (on.capturing && on.capture_thread != std::this_thread::get_id()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    on.capturing = false;
    const bool joined = state().end_joins(state().streams.at(stream));
    return with_context("cuStreamEndCapture", [&](auto& s) {
      *graph = nullptr;
      if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
      if (!on.capture_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      *graph = handle_of<CUgraph>(++s.last_handle);
      return s.graphs[*graph] = std::move(on.captured), CUDA_SUCCESS;
    });
  };
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

}  // namespace tessera
