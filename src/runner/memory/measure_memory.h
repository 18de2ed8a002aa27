// What a runner's memory is taken by, measured.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"
#include "tessera/runner/memory/memory_report.h"

namespace tessera {

class GraphRunner;
class RunnerParts;

// What a plan leaves free for the driver, kernels that are loaded later and other processes. Half of it left at the end
// of capture is little, and warned about.
std::int64_t memory_reserve(const DeviceProperties& device);

// What graphs of these stats take, or, where the device does not tell, `estimate` times `of_estimate`.
std::int64_t graph_bytes(const GraphStats& stats, std::int64_t estimate, double of_estimate);

// What graphs of `need` are expected to take.
GraphMemory estimated_graphs(const GraphNeed& need, const DeviceProperties& device);

// What is captured now. `of_estimate`: measured bytes of graph objects over the estimate, where the device does not
// tell.
RunnerMemory runner_memory(const GraphRunner& runner, const DeviceProperties& device, double of_estimate);

// What is taken now, step results left out. `available`: bytes of the device's memory that are free.
MemoryReport measure_memory(const RunnerParts& parts, double of_estimate, std::int64_t available);

}  // namespace tessera
