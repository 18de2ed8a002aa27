// Measures how many bytes a runner takes for each MemoryUse.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"
#include "tessera/runner/memory/memory_report.h"

namespace tessera {

class GraphRunner;
struct RunnerModel;
class RunnerParts;

// Returns the bytes that the memory plan leaves free for the driver, kernels that are loaded later, and other
// processes. After the start has captured the graphs, a warning is logged if less than half of this reserve is free.
std::int64_t memory_reserve(const DeviceProperties& device);

// Returns the memory of graphs with these statistics, in bytes. If the device does not report graph memory, returns
// `estimate` times `of_estimate`. Here and below, `of_estimate` is the ratio of the measured to the estimated bytes of
// all graph objects (GraphCapture::graph_bytes_of_estimate).
std::int64_t graph_bytes(const GraphStats& stats, std::int64_t estimate, double of_estimate);

// Returns the estimated memory of graphs that need this many nodes and graph objects.
GraphMemory estimated_graphs(const GraphNeed& need, const DeviceProperties& device);

// Returns the memory of the sizes of `runner` that are captured now. If the device does not report graph memory,
// multiplies estimates by `of_estimate`.
RunnerMemory runner_memory(const GraphRunner& runner, const DeviceProperties& device, double of_estimate);

// Returns the memory that exchanges with other ranks have taken so far. Must be called on the rank's thread.
std::int64_t communication_bytes(const RunnerModel& model);

// Returns the memory in use now, without step results. `available` is the device's free memory in bytes.
MemoryReport measure_memory(const RunnerParts& parts, double of_estimate, std::int64_t available);

}  // namespace tessera
