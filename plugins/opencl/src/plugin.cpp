// Defines the functions that the engine calls: the device table, a kernel for each operator, and their registration.
#include <array>
#include <string>

#include "operators.h"

TESSERA_PLUGIN("opencl", "1.0")

namespace opencl {
namespace {

constexpr const char* kType = "opencl";

Device& device_of(void* device) { return *static_cast<Device*>(device); }
Stream& stream_of(void* stream) { return *static_cast<Stream*>(stream); }

// ---- Device

std::int32_t open_device(void* /*self*/, std::int32_t ordinal, void** device, tessera_plugin_properties* properties,
                         tessera_plugin_error* error) {
  std::unique_ptr<Device> opened;
  OPENCL_TRY(Device::open(ordinal, opened, error));
  properties->name = opened->name().c_str();
  properties->memory_bytes = opened->memory_bytes();
  properties->threads = opened->compute_units();
  properties->on_host = 0;
  properties->has_pointers = 0;
  properties->has_bf16 = 0;
  properties->arenas_grow = 0;
  properties->block_bytes = 1;
  properties->graph_bytes = 0;
  properties->graph_node_bytes = 0;
  if (!opened->why_no_graphs().empty()) properties->why_no_graphs = opened->why_no_graphs().c_str();
  *device = opened.release();
  return TESSERA_PLUGIN_OK;
}

void close_device(void* device) { delete static_cast<Device*>(device); }
std::int64_t available_bytes(void* device) { return device_of(device).available_bytes(); }

void versions(void* /*self*/, const tessera_plugin_text* out) {
  const std::string text = driver_versions();
  out->append(out, text.data(), text.size());
}

// ---- Memory

std::int32_t allocate(void* device, std::size_t bytes, const char* name, void** handle, tessera_plugin_error* error) {
  std::unique_ptr<Memory> made;
  OPENCL_TRY(Memory::create(device_of(device), bytes, name, made, error));
  *handle = made.release();
  return TESSERA_PLUGIN_OK;
}

void free_memory(void* /*device*/, void* handle) { delete static_cast<Memory*>(handle); }

std::int32_t create_arena(void* device, std::size_t bytes, const char* name, void** arena, void** handle,
                          tessera_plugin_error* error) {
  OPENCL_TRY(allocate(device, bytes, name, handle, error));
  *arena = *handle;
  return TESSERA_PLUGIN_OK;
}

void free_arena(void* arena) { delete static_cast<Memory*>(arena); }

// ---- Streams and events

std::int32_t create_stream(void* device, const char* name, void** stream, tessera_plugin_error* error) {
  std::unique_ptr<Stream> made;
  OPENCL_TRY(Stream::create(device_of(device), name, made, error));
  *stream = made.release();
  return TESSERA_PLUGIN_OK;
}

void free_stream(void* stream) { delete static_cast<Stream*>(stream); }

std::int32_t upload(void* stream, tessera_plugin_address to, const void* data, std::size_t bytes,
                    tessera_plugin_error* error) {
  return stream_of(stream).upload(to, data, bytes, error);
}
std::int32_t download(void* stream, void* data, tessera_plugin_address from, std::size_t bytes,
                      tessera_plugin_error* error) {
  return stream_of(stream).download(data, from, bytes, error);
}
std::int32_t copy(void* stream, tessera_plugin_address to, tessera_plugin_address from, std::size_t bytes,
                  tessera_plugin_error* error) {
  return stream_of(stream).copy(to, from, bytes, error);
}
std::int32_t fill(void* stream, tessera_plugin_address to, std::uint8_t value, std::size_t bytes,
                  tessera_plugin_error* error) {
  return stream_of(stream).fill(to, value, bytes, error);
}
std::int32_t synchronize(void* stream, tessera_plugin_error* error) { return stream_of(stream).synchronize(error); }

std::int32_t create_event(void* /*device*/, std::int32_t /*timed*/, void** event, tessera_plugin_error* /*error*/) {
  *event = new Event;
  return TESSERA_PLUGIN_OK;
}
void free_event(void* event) { delete static_cast<Event*>(event); }
std::int32_t record_event(void* stream, void* event, tessera_plugin_error* error) {
  return stream_of(stream).record(*static_cast<Event*>(event), error);
}
std::int32_t wait_event(void* stream, void* event, tessera_plugin_error* error) {
  return stream_of(stream).wait(*static_cast<Event*>(event), error);
}
std::int32_t synchronize_event(void* event, tessera_plugin_error* error) {
  return static_cast<Event*>(event)->synchronize(error);
}
std::int32_t event_milliseconds(void* earlier, void* later, double* milliseconds, tessera_plugin_error* error) {
  return static_cast<Event*>(later)->milliseconds_since(*static_cast<Event*>(earlier), *milliseconds, error);
}

// ---- Recorded graphs

std::int32_t begin_recording(void* stream, const char* what, tessera_plugin_error* error) {
  return stream_of(stream).begin_recording(what, error);
}
std::int32_t end_recording(void* stream, void** graph, std::int64_t* nodes, std::int64_t* bytes,
                           tessera_plugin_error* error) {
  std::unique_ptr<Graph> made;
  OPENCL_TRY(stream_of(stream).end_recording(made, error));
  *nodes = made->nodes();
  *bytes = 0;
  *graph = made.release();
  return TESSERA_PLUGIN_OK;
}
void abandon_recording(void* stream) { stream_of(stream).abandon_recording(); }
std::int32_t launch_graph(void* graph, void* stream, tessera_plugin_error* error) {
  return stream_of(stream).launch(*static_cast<Graph*>(graph), error);
}
void free_graph(void* graph) { delete static_cast<Graph*>(graph); }

tessera_plugin_device make_device_table() {
  tessera_plugin_device table = {};
  table.size = sizeof table;
  table.type = kType;
  table.has_ordinals = 1;
  table.open = open_device;
  table.close = close_device;
  table.available_bytes = available_bytes;
  table.allocate = allocate;
  table.free_memory = free_memory;
  table.create_arena = create_arena;
  table.free_arena = free_arena;
  table.create_stream = create_stream;
  table.free_stream = free_stream;
  table.upload = upload;
  table.download = download;
  table.copy = copy;
  table.fill = fill;
  table.synchronize = synchronize;
  table.create_event = create_event;
  table.free_event = free_event;
  table.record_event = record_event;
  table.wait_event = wait_event;
  table.synchronize_event = synchronize_event;
  table.event_milliseconds = event_milliseconds;
  table.begin_recording = begin_recording;
  table.end_recording = end_recording;
  table.abandon_recording = abandon_recording;
  table.launch_graph = launch_graph;
  table.free_graph = free_graph;
  table.versions = versions;
  return table;
}

// ---- Kernels; `self` is the operator.

struct BoundOperator {
  Bound bound;
  std::uint64_t variant = 0;
};

std::int32_t bind(void* self, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error) {
  const auto& op = *static_cast<const Operator*>(self);
  auto made = std::make_unique<BoundOperator>();
  Binding binding(*call, made->bound, error);
  OPENCL_TRY(op.bind(binding));
  if (op.variant != nullptr) made->variant = op.variant(*call);
  *bound = made.release();
  return TESSERA_PLUGIN_OK;
}

std::int32_t enqueue(const void* bound, void* stream, tessera_plugin_error* error) {
  return static_cast<const BoundOperator*>(bound)->bound.enqueue(stream_of(stream), error);
}

void release(void* bound) { delete static_cast<BoundOperator*>(bound); }
std::uint64_t variant(const void* bound) { return static_cast<const BoundOperator*>(bound)->variant; }

// Makes the tables of all kernels. The caller keeps them in a static variable, because they must live as long as the
// library.
std::vector<tessera_plugin_kernel> make_kernels() {
  std::vector<tessera_plugin_kernel> kernels;
  for (const std::span<const Operator> list :
       {row_operators(), rope_operators(), linear_operators(), attention_operators(), token_operators()})
    for (const Operator& op : list) {
      tessera_plugin_kernel kernel = {};
      kernel.size = sizeof kernel;
      kernel.self = const_cast<Operator*>(&op);
      kernel.op = op.name;
      kernel.device = kType;
      kernel.name = kType;
      kernel.bind = bind;
      kernel.enqueue = enqueue;
      kernel.release = release;
      kernel.planner = op.planner;
      kernel.variant = variant;
      kernels.push_back(kernel);
    }
  return kernels;
}

}  // namespace
}  // namespace opencl

extern "C" std::int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  static const tessera_plugin_device device = opencl::make_device_table();
  static const std::vector<tessera_plugin_kernel> kernels = opencl::make_kernels();
  OPENCL_TRY(host->add_device(host, &device, error));
  for (const tessera_plugin_kernel& kernel : kernels) OPENCL_TRY(host->add_kernel(host, &kernel, error));
  return TESSERA_PLUGIN_OK;
}
