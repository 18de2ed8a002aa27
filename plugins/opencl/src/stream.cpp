#include "stream.h"

namespace opencl {

Graph::~Graph() {
  if (commands_ == nullptr) return;
  if (last_.get() != nullptr) {
    cl_event last = last_.get();
    clWaitForEvents(1, &last);
  }
  device_.command_buffers().release(commands_);
}

std::int32_t Graph::launch(cl_command_queue queue, tessera_plugin_error* error) {
  if (commands_ == nullptr) return TESSERA_PLUGIN_OK;
  const CommandBuffers& functions = device_.command_buffers();
  if (functions.overlapping)
    return check(error, functions.enqueue(1, &queue, commands_, 0, nullptr, nullptr), "clEnqueueCommandBufferKHR");
  if (last_.get() != nullptr) {
    cl_event last = last_.get();
    OPENCL_TRY(check(error, clWaitForEvents(1, &last), "clWaitForEvents before clEnqueueCommandBufferKHR"));
  }
  cl_event now = nullptr;
  OPENCL_TRY(check(error, functions.enqueue(1, &queue, commands_, 0, nullptr, &now), "clEnqueueCommandBufferKHR"));
  last_ = ClEvent(now);
  return TESSERA_PLUGIN_OK;
}

std::int32_t Event::synchronize(tessera_plugin_error* error) const {
  cl_event event = passed.get();
  return event == nullptr ? TESSERA_PLUGIN_OK : check(error, clWaitForEvents(1, &event), "clWaitForEvents");
}

std::int32_t Event::milliseconds_since(const Event& earlier, double& milliseconds, tessera_plugin_error* error) const {
  cl_ulong ends[2] = {};
  const cl_event events[] = {earlier.passed.get(), passed.get()};
  for (int i = 0; i < 2; ++i) {
    cl_int status = CL_QUEUED;
    if (events[i] != nullptr)
      OPENCL_TRY(check(error,
                       clGetEventInfo(events[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
                       "clGetEventInfo"));
    if (status != CL_COMPLETE) return fail(error, TESSERA_PLUGIN_FAILED_PRECONDITION, "an event is not passed yet");
    OPENCL_TRY(check(error,
                     clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof ends[i], &ends[i], nullptr),
                     "clGetEventProfilingInfo"));
  }
  milliseconds = (static_cast<double>(ends[1]) - static_cast<double>(ends[0])) * 1e-6;
  return TESSERA_PLUGIN_OK;
}

std::int32_t Stream::create(Device& device, const char* name, std::unique_ptr<Stream>& made,
                            tessera_plugin_error* error) {
  // Enables profiling, for events that measure time.
  const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
  cl_int result = CL_SUCCESS;
  cl_command_queue queue = clCreateCommandQueueWithProperties(device.context(), device.id(), properties, &result);
  OPENCL_TRY(check(error, result, std::string("clCreateCommandQueueWithProperties for stream \"") + name + "\""));
  made.reset(new Stream(device, name, queue));
  return TESSERA_PLUGIN_OK;
}

Stream::~Stream() {
  abandon_recording();
  clFinish(queue_.get());  // staged memory must stay valid until the queue has read it
}

std::int32_t Stream::upload(tessera_plugin_address to, const void* data, std::size_t bytes,
                            tessera_plugin_error* error) {
  return staging_.write(queue_.get(), Memory::at(to).buffer(), to.offset, data, bytes, error);
}

std::int32_t Stream::download(void* data, tessera_plugin_address from, std::size_t bytes, tessera_plugin_error* error) {
  const cl_int result = clEnqueueReadBuffer(queue_.get(), Memory::at(from).buffer(), CL_FALSE, from.offset, bytes, data,
                                            0, nullptr, nullptr);
  return check(error, result, "clEnqueueReadBuffer");
}

std::int32_t Stream::recorded(cl_int result, const char* what, tessera_plugin_error* error) {
  OPENCL_TRY(check(error, result, what));
  ++nodes_;
  return TESSERA_PLUGIN_OK;
}

std::int32_t Stream::copy(tessera_plugin_address to, tessera_plugin_address from, std::size_t bytes,
                          tessera_plugin_error* error) {
  cl_mem source = Memory::at(from).buffer();
  cl_mem target = Memory::at(to).buffer();
  if (commands_ != nullptr)
    return recorded(device_.command_buffers().copy(commands_, nullptr, source, target, from.offset, to.offset, bytes, 0,
                                                   nullptr, nullptr, nullptr),
                    "clCommandCopyBufferKHR", error);
  return check(error,
               clEnqueueCopyBuffer(queue_.get(), source, target, from.offset, to.offset, bytes, 0, nullptr, nullptr),
               "clEnqueueCopyBuffer");
}

std::int32_t Stream::fill(tessera_plugin_address to, std::uint8_t value, std::size_t bytes,
                          tessera_plugin_error* error) {
  cl_mem target = Memory::at(to).buffer();
  if (commands_ != nullptr)
    return recorded(device_.command_buffers().fill(commands_, nullptr, target, &value, 1, to.offset, bytes, 0, nullptr,
                                                   nullptr, nullptr),
                    "clCommandFillBufferKHR", error);
  return check(error, clEnqueueFillBuffer(queue_.get(), target, &value, 1, to.offset, bytes, 0, nullptr, nullptr),
               "clEnqueueFillBuffer");
}

std::int32_t Stream::run(const Launch& launch, tessera_plugin_error* error) {
  if (commands_ != nullptr)
    return recorded(
        device_.command_buffers().kernel(commands_, nullptr, nullptr, launch.kernel.get(), launch.dims, nullptr,
                                         launch.global, launch.local, 0, nullptr, nullptr, nullptr),
        "clCommandNDRangeKernelKHR", error);
  return check(error,
               clEnqueueNDRangeKernel(queue_.get(), launch.kernel.get(), launch.dims, nullptr, launch.global,
                                      launch.local, 0, nullptr, nullptr),
               "clEnqueueNDRangeKernel");
}

std::int32_t Stream::synchronize(tessera_plugin_error* error) {
  return check(error, clFinish(queue_.get()), "clFinish of stream \"" + name_ + "\"");
}

std::int32_t Stream::record(Event& event, tessera_plugin_error* error) {
  cl_event passed = nullptr;
  OPENCL_TRY(
      check(error, clEnqueueMarkerWithWaitList(queue_.get(), 0, nullptr, &passed), "clEnqueueMarkerWithWaitList"));
  event.passed = ClEvent(passed);
  // Another queue may wait for the event, and a queue that is not flushed may never reach it.
  return check(error, clFlush(queue_.get()), "clFlush");
}

std::int32_t Stream::wait(const Event& event, tessera_plugin_error* error) {
  cl_event passed = event.passed.get();
  if (passed == nullptr) return TESSERA_PLUGIN_OK;
  return check(error, clEnqueueBarrierWithWaitList(queue_.get(), 1, &passed, nullptr), "clEnqueueBarrierWithWaitList");
}

std::int32_t Stream::begin_recording(const char* what, tessera_plugin_error* error) {
  if (!device_.why_no_graphs().empty()) return fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, device_.why_no_graphs());
  const cl_command_buffer_properties_khr overlapping[] = {CL_COMMAND_BUFFER_FLAGS_KHR,
                                                          CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR, 0};
  cl_command_queue queue = queue_.get();
  cl_int result = CL_SUCCESS;
  commands_ = device_.command_buffers().create(1, &queue, device_.command_buffers().overlapping ? overlapping : nullptr,
                                               &result);
  nodes_ = 0;
  if (result != CL_SUCCESS) commands_ = nullptr;
  return check(error, result, std::string("clCreateCommandBufferKHR for ") + what);
}

std::int32_t Stream::end_recording(std::unique_ptr<Graph>& graph, tessera_plugin_error* error) {
  if (nodes_ == 0) {
    abandon_recording();
    graph = std::make_unique<Graph>(device_, nullptr, 0);
    return TESSERA_PLUGIN_OK;
  }
  const cl_int result = device_.command_buffers().finalize(commands_);
  if (result != CL_SUCCESS) {
    abandon_recording();
    return check(error, result, "clFinalizeCommandBufferKHR");
  }
  graph = std::make_unique<Graph>(device_, std::exchange(commands_, nullptr), nodes_);
  return TESSERA_PLUGIN_OK;
}

void Stream::abandon_recording() {
  if (commands_ != nullptr) device_.command_buffers().release(std::exchange(commands_, nullptr));
}

}  // namespace opencl
