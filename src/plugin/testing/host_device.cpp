// A plugin's device that uses the host's memory, for the conformance suite and for tests of what a device may report.
// Its graphs record copies and fills. "host_test:1" records no graphs, and arenas of "host_test:2" do not grow.
// "host_capture" is the same device with a capture function.
#include <tessera_plugin.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

TESSERA_PLUGIN("host_device", "1.0")

namespace {

using Work = std::function<void()>;

struct Device {
  int ordinal;
};
struct Arena {
  unsigned char* data;
};
struct Stream {
  bool recording = false;
  bool busy = false;  // work was enqueued after the last synchronize
  std::vector<Work> recorded;
};
struct Event {
  std::chrono::steady_clock::time_point at;
};

int live = 0;               // objects that were not freed
int allowed = -1;           // number of allocations before one is refused; -1 if none is refused
int freed_busy = 0;         // streams that were freed before their work had ended
bool empty_handed = false;  // if true, functions report success but do not make the object

int32_t open_device(void*, int32_t ordinal, void** device, tessera_plugin_properties* properties,
                    tessera_plugin_error* error) {
  if (ordinal > 2) return tessera_plugin_fail(error, TESSERA_PLUGIN_NOT_FOUND, "this machine has three of them");
  *device = new Device{ordinal};
  ++live;
  properties->name = "host memory";
  properties->memory_bytes = 256 << 20;
  properties->threads = 1;
  properties->has_pointers = 1;
  properties->arenas_grow = ordinal != 2;
  properties->block_bytes = 4096;
  if (ordinal == 1) properties->why_no_graphs = "this one forgets";
  return TESSERA_PLUGIN_OK;
}

template <class T>
void free_object(void* object) {
  delete static_cast<T*>(object);
  --live;
}

unsigned char* take(size_t bytes, tessera_plugin_error* error) {
  auto* data = static_cast<unsigned char*>(
      allowed == 0 || bytes > (size_t{1} << 30) ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (allowed > 0) --allowed;
  if (data == nullptr)
    (void)tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "no memory is left");
  else
    ++live;
  return data;
}

int32_t allocate(void*, size_t bytes, const char*, void** handle, tessera_plugin_error* error) {
  *handle = take(bytes, error);
  return *handle == nullptr ? TESSERA_PLUGIN_RESOURCE_EXHAUSTED : TESSERA_PLUGIN_OK;
}
void free_memory(void*, void* handle) {
  std::free(handle);
  --live;
}

int32_t create_arena(void*, size_t bytes, const char*, void** arena, void** handle, tessera_plugin_error* error) {
  if (empty_handed) {
    alignas(TESSERA_PLUGIN_ALIGNMENT) static unsigned char nobodys[TESSERA_PLUGIN_ALIGNMENT];
    *handle = nobodys;
    return TESSERA_PLUGIN_OK;
  }
  unsigned char* data = take(bytes, error);
  if (data == nullptr) return TESSERA_PLUGIN_RESOURCE_EXHAUSTED;
  *arena = new Arena{data};
  *handle = data;
  return TESSERA_PLUGIN_OK;
}
int32_t grow_arena(void*, size_t, tessera_plugin_error* error) {
  if (allowed == 0) return tessera_plugin_fail(error, TESSERA_PLUGIN_RESOURCE_EXHAUSTED, "no memory is left");
  return TESSERA_PLUGIN_OK;
}
void free_arena(void* arena) {
  std::free(static_cast<Arena*>(arena)->data);
  free_object<Arena>(arena);
}

int32_t create_stream(void*, const char*, void** stream, tessera_plugin_error*) {
  if (empty_handed) return TESSERA_PLUGIN_OK;
  *stream = new Stream;
  ++live;
  return TESSERA_PLUGIN_OK;
}

void free_stream(void* stream) {
  if (static_cast<Stream*>(stream)->busy) ++freed_busy;
  free_object<Stream>(stream);
}

unsigned char* at(tessera_plugin_address address) {
  return static_cast<unsigned char*>(address.handle) + address.offset;
}

int32_t run(void* stream, Work work) {
  auto* on = static_cast<Stream*>(stream);
  if (on->recording)
    on->recorded.push_back(std::move(work));
  else
    work();
  on->busy = on->busy || !on->recording;
  return TESSERA_PLUGIN_OK;
}

int32_t upload(void*, tessera_plugin_address to, const void* data, size_t bytes, tessera_plugin_error*) {
  std::memcpy(at(to), data, bytes);
  return TESSERA_PLUGIN_OK;
}
int32_t download(void*, void* data, tessera_plugin_address from, size_t bytes, tessera_plugin_error*) {
  std::memcpy(data, at(from), bytes);
  return TESSERA_PLUGIN_OK;
}
int32_t copy(void* stream, tessera_plugin_address to, tessera_plugin_address from, size_t bytes,
             tessera_plugin_error*) {
  return run(stream, [=] { std::memcpy(at(to), at(from), bytes); });
}
int32_t fill(void* stream, tessera_plugin_address to, uint8_t value, size_t bytes, tessera_plugin_error*) {
  return run(stream, [=] { std::memset(at(to), value, bytes); });
}
int32_t synchronize(void* stream, tessera_plugin_error*) {
  static_cast<Stream*>(stream)->busy = false;
  return TESSERA_PLUGIN_OK;
}

int32_t create_event(void*, int32_t, void** event, tessera_plugin_error*) {
  if (empty_handed) return TESSERA_PLUGIN_OK;
  *event = new Event{};
  ++live;
  return TESSERA_PLUGIN_OK;
}
int32_t record_event(void*, void* event, tessera_plugin_error*) {
  static_cast<Event*>(event)->at = std::chrono::steady_clock::now();
  return TESSERA_PLUGIN_OK;
}
int32_t wait_event(void*, void*, tessera_plugin_error*) { return TESSERA_PLUGIN_OK; }
int32_t synchronize_event(void*, tessera_plugin_error*) { return TESSERA_PLUGIN_OK; }
int32_t event_milliseconds(void* earlier, void* later, double* milliseconds, tessera_plugin_error*) {
  const auto time = static_cast<Event*>(later)->at - static_cast<Event*>(earlier)->at;
  *milliseconds = std::chrono::duration<double, std::milli>(time).count();
  return TESSERA_PLUGIN_OK;
}

int32_t begin_recording(void* stream, const char*, tessera_plugin_error*) {
  static_cast<Stream*>(stream)->recording = true;
  return TESSERA_PLUGIN_OK;
}
void abandon_recording(void* stream) {
  static_cast<Stream*>(stream)->recording = false;
  static_cast<Stream*>(stream)->recorded.clear();
}
int32_t end_recording(void* stream, void** graph, int64_t* nodes, int64_t* bytes, tessera_plugin_error*) {
  auto* on = static_cast<Stream*>(stream);
  if (empty_handed) {
    abandon_recording(stream);
    return TESSERA_PLUGIN_OK;
  }
  auto* kept = new std::vector<Work>;
  ++live;
  kept->swap(on->recorded);
  on->recording = false;
  *graph = kept;
  *nodes = static_cast<int64_t>(kept->size());
  *bytes = 0;
  return TESSERA_PLUGIN_OK;
}
int32_t launch_graph(void* graph, void*, tessera_plugin_error*) {
  for (const Work& work : *static_cast<std::vector<Work>*>(graph)) work();
  return TESSERA_PLUGIN_OK;
}

tessera_plugin_device make_table() {
  tessera_plugin_device table{};
  table.size = sizeof(table);
  table.type = "host_test";
  table.has_ordinals = 1;
  table.open = open_device;
  table.close = free_object<Device>;
  table.available_bytes = [](void*) -> int64_t { return 1 << 30; };
  table.allocate = allocate;
  table.free_memory = free_memory;
  table.create_arena = create_arena;
  table.grow_arena = grow_arena;
  table.free_arena = free_arena;
  table.create_stream = create_stream;
  table.free_stream = free_stream;
  table.upload = upload;
  table.download = download;
  table.copy = copy;
  table.fill = fill;
  table.synchronize = synchronize;
  table.create_event = create_event;
  table.free_event = free_object<Event>;
  table.record_event = record_event;
  table.wait_event = wait_event;
  table.synchronize_event = synchronize_event;
  table.event_milliseconds = event_milliseconds;
  table.begin_recording = begin_recording;
  table.end_recording = end_recording;
  table.abandon_recording = abandon_recording;
  table.launch_graph = launch_graph;
  table.free_graph = free_object<std::vector<Work>>;
  return table;
}

// The device's capture function. The graph runs the steps in reverse order, so that a test can distinguish it from a
// recording.
int32_t capture(void*, const tessera_plugin_steps* steps, void* stream, const char* what, void** graph, int64_t* nodes,
                int64_t* bytes, tessera_plugin_error* error) {
  if (const int32_t code = begin_recording(stream, what, error); code != TESSERA_PLUGIN_OK) return code;
  for (size_t i = steps->count; i > 0; --i) {
    if (const int32_t code = steps->enqueue(steps, i - 1, error); code != TESSERA_PLUGIN_OK) {
      abandon_recording(stream);
      return code;
    }
  }
  return end_recording(stream, graph, nodes, bytes, error);
}

tessera_plugin_device make_capturing_table() {
  tessera_plugin_device table = make_table();
  table.type = "host_capture";
  table.capture = capture;
  return table;
}

const tessera_plugin_device kDevice = make_table();
const tessera_plugin_device kCapturing = make_capturing_table();

}  // namespace

extern "C" TESSERA_PLUGIN_EXPORT int device_live() { return live; }
extern "C" TESSERA_PLUGIN_EXPORT void device_allow(int allocations) { allowed = allocations; }
extern "C" TESSERA_PLUGIN_EXPORT void device_make_nothing(int nothing) { empty_handed = nothing != 0; }
extern "C" TESSERA_PLUGIN_EXPORT int device_streams_freed_busy() { return freed_busy; }

extern "C" int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
  const int32_t code = host->add_device(host, &kDevice, error);
  return code != TESSERA_PLUGIN_OK ? code : host->add_device(host, &kCapturing, error);
}
