#include "tessera/plugin/device_events.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tessera/device/errors.h"
#include "tessera/plugin/c_call.h"

namespace tessera::plugin {

Result<std::unique_ptr<PluginEvent>> PluginEvent::create(PluginDevice& device, std::string name, EventKind kind) {
  const std::string context = fmt::format("{} '{}'", device_call_name(DeviceCall::kCreateEvent), name);
  void* handle = nullptr;
  TRY(call([&](tessera_plugin_error* error) {
        return device.table()->create_event(device.handle(), kind == EventKind::kTime ? 1 : 0, &handle, error);
      }).with_context(context));
  TRY(check_made(handle, "event").with_context(context));
  return std::unique_ptr<PluginEvent>(new PluginEvent(device, std::move(name), kind, handle));
}

PluginEvent::~PluginEvent() {
  call_and_forget([this] { device_.table()->free_event(handle_); });
}

Status PluginEvent::synchronize() {
  TRY(device_.recording().check(DeviceCall::kSynchronizeEvent, name_));
  if (!recorded_) return ok_status();
  return call([&](tessera_plugin_error* error) { return device_.table()->synchronize_event(handle_, error); })
      .with_context(fmt::format("{} '{}'", device_call_name(DeviceCall::kSynchronizeEvent), name_));
}

Result<double> PluginEvent::milliseconds_since(const Event& earlier) const {
  const auto* first = dynamic_cast<const PluginEvent*>(&earlier);
  const bool timed = first != nullptr && kind_ == EventKind::kTime && first->kind_ == EventKind::kTime;
  if (!timed || !first->recorded_ || !recorded_) return event_without_time(name_);
  double milliseconds = 0;
  TRY(call([&](tessera_plugin_error* error) {
        return device_.table()->event_milliseconds(first->handle_, handle_, &milliseconds, error);
      }).with_context(fmt::format("time of '{}'", name_)));
  return milliseconds;
}

PluginGraph::~PluginGraph() {
  call_and_forget([this] { device_.table()->free_graph(handle_); });
}

Status PluginGraph::launch(Stream& stream) {
  auto* on = dynamic_cast<PluginStream*>(&stream);
  if (on == nullptr || &on->device() != &device_) return graph_of_another_device(name_);
  if (on->recording()) return refused_while_recording(DeviceCall::kReplay, name_, on->recording_what());
  Status status =
      call([&](tessera_plugin_error* error) { return device_.table()->launch_graph(handle_, on->handle(), error); });
  return status.ok() ? ok_status() : std::move(status).with_context(fmt::format("replay of graph '{}'", name_));
}

namespace {

// A piece of a forward on a device that records no graphs. Every launch runs the piece's operators one by one.
class EagerPiece final : public RecordedGraph {
 public:
  explicit EagerPiece(const BoundProgram& program) : program_(program) {}
  Status launch(Stream& stream) override { return program_.enqueue(stream); }
  GraphStats stats() const override {
    return {.nodes = static_cast<std::int64_t>(program_.num_instructions()), .bytes = 0};
  }

 private:
  const BoundProgram& program_;  // belongs to the bound forward, which outlives the piece
};

// The steps that a plugin's capture function may run.
struct Steps {
  std::vector<std::pair<const BoundProgram*, std::size_t>> at;  // [steps]: program, and index of the instruction
  PluginStream& stream;
};

std::int32_t enqueue_step(const tessera_plugin_steps* steps, std::size_t i, tessera_plugin_error* error) {
  Steps& of = *static_cast<Steps*>(steps->host);
  if (i >= of.at.size())
    return to_c(invalid_argument(fmt::format("step {} of {} was asked for", i, of.at.size())), error);
  return to_c(of.at[i].first->enqueue_instruction(of.at[i].second, of.stream), error);
}

// Makes graphs of pieces with the device's capture function if there is one, else by recording the device's stream.
// On a device that records no graphs, the operators of a piece run one by one.
class PluginBackend final : public PiecewiseBackend {
 public:
  explicit PluginBackend(std::shared_ptr<const DeviceTable> table) : table_(std::move(table)) {}

  Result<std::unique_ptr<RecordedGraph>> capture(const BoundProgram& program, Stream& stream,
                                                 const std::string& what) const override {
    PluginStream& on = as_plugin(stream);
    if (!on.device().why_no_graphs().empty()) return std::make_unique<EagerPiece>(program);
    if (table_->get()->capture != nullptr) return capture_by_plugin(program, on, what);
    return recording_backend().capture(program, stream, what);
  }
  Result<std::unique_ptr<RecordedGraph>> capture_all(std::span<const BoundProgram> programs, Stream& stream,
                                                     const std::string& what) const override {
    if (as_plugin(stream).device().why_no_graphs().empty() && table_->get()->capture == nullptr)
      return recording_backend().capture_all(programs, stream, what);
    return PiecewiseBackend::capture_all(programs, stream, what);
  }
  std::string note() const override {
    const std::string why = table_->why_no_graphs();
    if (why.empty()) return {};
    return fmt::format("device {} records no graphs, {}: pieces run operator by operator", table_->type(), why);
  }

 private:
  Result<std::unique_ptr<RecordedGraph>> capture_by_plugin(const BoundProgram& program, PluginStream& stream,
                                                           const std::string& what) const {
    Steps of{.at = {}, .stream = stream};
    for (std::size_t i = 0; i < program.num_instructions(); ++i)
      if (program.op(i) != nullptr) of.at.emplace_back(&program, i);
    const tessera_plugin_steps steps{
        .size = sizeof(steps), .count = of.at.size(), .enqueue = enqueue_step, .host = &of};
    PluginDevice& device = stream.device();
    TRY(device.recording().open(stream, what));
    void* graph = nullptr;
    GraphStats stats;
    const Status status = call([&](tessera_plugin_error* error) {
      return device.table()->capture(device.handle(), &steps, stream.handle(), what.c_str(), &graph, &stats.nodes,
                                     &stats.bytes, error);
    });
    const Status closed = device.recording().close(stream);
    TRY(status.with_context(fmt::format("capture of '{}'", what)));
    TRY(check_made(graph, "graph").with_context(fmt::format("capture of '{}'", what)));
    auto captured = std::make_unique<PluginGraph>(device, what, graph, stats);
    TRY(closed);
    return captured;
  }

  std::shared_ptr<const DeviceTable> table_;
};

}  // namespace

std::shared_ptr<const PiecewiseBackend> make_backend(std::shared_ptr<const DeviceTable> table) {
  return std::make_shared<PluginBackend>(std::move(table));
}

}  // namespace tessera::plugin
