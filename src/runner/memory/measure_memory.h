// Measures a runner's memory by use.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"
#include "tessera/runner/memory/memory_report.h"

namespace tessera {

class GraphRunner;
struct RunnerModel;
class RunnerParts;

// Returns the bytes that a plan leaves free for the driver, kernels that are loaded later, and other processes. A
// warning is given if less than half of them is free at the end of capture.
std::int64_t memory_reserve(const DeviceProperties& device);

// Returns the bytes that graphs with these stats take. If the device does not report it, returns `estimate` times
// `of_estimate`.
std::int64_t graph_bytes(const GraphStats& stats, std::int64_t estimate, double of_estimate);

// Returns the memory that graphs of `need` are expected to take.
GraphMemory estimated_graphs(const GraphNeed& need, const DeviceProperties& device);

// Returns the memory of the sizes captured now. If the device does not report graph memory, estimates are multiplied by
// `of_estimate`: measured bytes of graph objects over their estimate.
RunnerMemory runner_memory(const GraphRunner& runner, const DeviceProperties& device, double of_estimate);

// Returns the memory that exchanges with other ranks have taken so far. Called on the rank's thread.
std::int64_t communication_bytes(const RunnerModel& model);

// Returns the memory taken now, without step results. `available` is the device memory that is free, in bytes.
MemoryReport measure_memory(const RunnerParts& parts, double of_estimate, std::int64_t available);

}  // namespace tessera
