// Implements streams and their recordings. A stream is an in-order queue. While it records, its work goes to a command
// buffer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "staging.h"

namespace opencl {

// A kernel with fixed arguments and sizes. Each launch has a kernel object of its own, because some drivers read its
// arguments when a command buffer runs, not when it is recorded.
struct Launch {
  Kernel kernel;
  cl_uint dims = 1;
  std::size_t global[2] = {1, 1};  // multiples of local
  std::size_t local[2] = {1, 1};
};

class Graph {
 public:
  Graph(Device& device, cl_command_buffer_khr commands, std::int64_t nodes)
      : device_(device), commands_(commands), nodes_(nodes) {}
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::int32_t launch(cl_command_queue queue, tessera_plugin_error* error);
  std::int64_t nodes() const { return nodes_; }

 private:
  Device& device_;
  cl_command_buffer_khr commands_;  // null: the graph has no nodes
  std::int64_t nodes_;
  ClEvent last_;  // event of the last launch, if the driver must not overlap launches
};

struct Event {
  ClEvent passed;  // event of the last record(); null: never recorded

  std::int32_t synchronize(tessera_plugin_error* error) const;
  // Returns FAILED_PRECONDITION unless both events were recorded and have passed.
  std::int32_t milliseconds_since(const Event& earlier, double& milliseconds, tessera_plugin_error* error) const;
};

class Stream {
 public:
  static std::int32_t create(Device& device, const char* name, std::unique_ptr<Stream>& made,
                             tessera_plugin_error* error);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::int32_t upload(tessera_plugin_address to, const void* data, std::size_t bytes, tessera_plugin_error* error);
  std::int32_t download(void* data, tessera_plugin_address from, std::size_t bytes, tessera_plugin_error* error);
  std::int32_t copy(tessera_plugin_address to, tessera_plugin_address from, std::size_t bytes,
                    tessera_plugin_error* error);
  std::int32_t fill(tessera_plugin_address to, std::uint8_t value, std::size_t bytes, tessera_plugin_error* error);
  std::int32_t run(const Launch& launch, tessera_plugin_error* error);
  std::int32_t synchronize(tessera_plugin_error* error);

  std::int32_t record(Event& event, tessera_plugin_error* error);
  std::int32_t wait(const Event& event, tessera_plugin_error* error);

  std::int32_t begin_recording(const char* what, tessera_plugin_error* error);
  std::int32_t end_recording(std::unique_ptr<Graph>& graph, tessera_plugin_error* error);
  void abandon_recording();
  std::int32_t launch(Graph& graph, tessera_plugin_error* error) { return graph.launch(queue_.get(), error); }

 private:
  Stream(Device& device, std::string name, cl_command_queue queue)
      : device_(device), name_(std::move(name)), queue_(queue) {}
  // Counts a recorded command.
  std::int32_t recorded(cl_int result, const char* what, tessera_plugin_error* error);

  Device& device_;
  std::string name_;
  Staging staging_;
  Queue queue_;
  cl_command_buffer_khr commands_ = nullptr;  // not null while the stream records
  std::int64_t nodes_ = 0;
};

}  // namespace opencl
