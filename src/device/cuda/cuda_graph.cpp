#include "tessera/device/cuda/cuda_graph.h"

#include "tessera/device/cuda/cuda_stream.h"

namespace tessera {

Result<std::unique_ptr<CudaEvent>> CudaEvent::create(CudaDevice& device, std::string name, EventKind kind) {
  std::unique_ptr<CudaEvent> event(new CudaEvent(device, std::move(name), kind));
  const unsigned flags = kind == EventKind::kTime ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
  TRY(device.check(device.driver().cuEventCreate(&event->handle_, flags),
                   {"cuEventCreate", DeviceCall::kCreateEvent, event->name_}));
  return event;
}

CudaEvent::~CudaEvent() {
  if (handle_ == nullptr) return;
  device_.release([&driver = device_.driver(), handle = handle_] { (void)driver.cuEventDestroy(handle); });
}

Status CudaEvent::synchronize() {
  TRY(device_.enter(DeviceCall::kSynchronizeEvent, name_));
  return device_.check(device_.driver().cuEventSynchronize(handle_),
                       {"cuEventSynchronize", DeviceCall::kSynchronizeEvent, name_});
}

Status CudaEvent::record(CUstream stream, std::string_view stream_name) {
  TRY(device_.check(device_.driver().cuEventRecord(handle_, stream),
                    {"cuEventRecord", DeviceCall::kRecordEvent, stream_name}));
  recorded_.store(true, std::memory_order_release);
  return ok_status();
}

Result<double> CudaEvent::milliseconds_since(const Event& earlier) const {
  TRY(device_.begin(DeviceCall::kSynchronizeEvent, name_));
  const auto& first = static_cast<const CudaEvent&>(earlier);
  if (!has_time() || !first.has_time()) return event_without_time(name_);
  float milliseconds = 0;
  const CUresult result = device_.driver().cuEventElapsedTime(&milliseconds, first.handle_, handle_);
  if (result == CUDA_ERROR_NOT_READY) return event_without_time(name_);
  TRY(device_.check(result, {"cuEventElapsedTime", DeviceCall::kSynchronizeEvent, name_}));
  return milliseconds;
}

Result<std::unique_ptr<CudaGraph>> CudaGraph::create(CudaDevice& device, std::string name, CUgraph graph,
                                                     CUstream stream, bool priorities) {
  std::unique_ptr<CudaGraph> recorded(new CudaGraph(device, std::move(name)));
  const Driver& driver = device.driver();
  const std::string& what = recorded->name_;
  std::size_t nodes = 0;
  TRY(device.check(driver.cuGraphGetNodes(graph, nullptr, &nodes),
                   {"cuGraphGetNodes", DeviceCall::kEndRecording, what}));
  const unsigned flags = priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
  TRY(device.check(driver.cuGraphInstantiate(&recorded->exec_, graph, flags),
                   {"cuGraphInstantiate", DeviceCall::kEndRecording, what}));
  TRY(device.check(driver.cuGraphUpload(recorded->exec_, stream), {"cuGraphUpload", DeviceCall::kEndRecording, what}));
  recorded->nodes_ = static_cast<std::int64_t>(nodes);
  return recorded;
}

CudaGraph::~CudaGraph() {
  if (exec_ == nullptr) return;
  device_.release([&driver = device_.driver(), exec = exec_] { (void)driver.cuGraphExecDestroy(exec); });
}

Status CudaGraph::launch(Stream& stream) {
  auto* on = dynamic_cast<CudaStream*>(&stream);
  if (on == nullptr || &on->device() != &device_) return graph_of_another_device(name_);
  if (on->recording()) return refused_while_recording(DeviceCall::kReplay, name_, on->recording_what());
  TRY(device_.enter(DeviceCall::kReplay, name_));
  return device_.check(device_.driver().cuGraphLaunch(exec_, on->handle()),
                       {"cuGraphLaunch", DeviceCall::kReplay, name_});
}

}  // namespace tessera
