// The memory of a runner by what takes it, beside what was predicted before anything was taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device/device.h"

namespace tessera {

class GraphRunner;
class RunnerParts;

// What graphs and the forwards' buffers take, bytes: predicted from shapes, or measured.
struct WorkingMemory {
  std::int64_t arena = 0;          // values of forwards: shared by all sizes of all runners
  std::int64_t workspace = 0;      // kernels' scratch: shared likewise
  std::int64_t static_inputs = 0;  // of tokens, rows and logit edits
  std::int64_t plans = 0;          // operators' plans: lengths, page tables, the kernels' work lists
  std::int64_t step_results = 0;   // on the host
  std::int64_t graph_objects = 0;

  // On the device, graphs left out: forwards without graphs need it too.
  std::int64_t activations() const { return arena + workspace + static_inputs + plans; }
};

// The graphs of one captured size.
struct SizeMemory {
  std::int64_t size = 0;
  std::int64_t graphs = 0;
  std::int64_t nodes = 0;        // kernels, copies and fills
  std::int64_t graph_bytes = 0;  // where the device does not tell, the size's share of what all captures took
};

struct RunnerMemory {
  std::string name;  // "prefill" "decode"
  std::vector<SizeMemory> sizes{};
  std::int64_t graph_bytes() const {
    std::int64_t sum = 0;
    for (const SizeMemory& size : sizes) sum += size.graph_bytes;
    return sum;
  }
};

// Bytes.
struct MemoryLedger {
  std::int64_t weights = 0;
  std::int64_t kv_cache = 0;
  std::int64_t arena = 0;
  std::int64_t workspace = 0;
  std::int64_t static_inputs = 0;
  // Where the device does not tell: what captures took of its memory beside arena and workspace, kernels that were
  // loaded meanwhile included.
  std::int64_t graph_objects = 0;
  std::int64_t plans = 0;
  std::int64_t step_results = 0;
  std::int64_t available = 0;  // of the device, at the end of capture
  WorkingMemory predicted{};
  std::vector<RunnerMemory> runners{};
};

// What a plan leaves free for the driver, kernels that are loaded later and other processes. Half of it left at the end
// of capture is little, and warned about.
std::int64_t memory_reserve(const DeviceProperties& device);

// What graphs of these stats take, or, where the device does not tell, `estimate` times `of_estimate`.
std::int64_t graph_bytes(const GraphStats& stats, std::int64_t estimate, double of_estimate);

// What is captured now. `of_estimate`: measured bytes of graph objects over DeviceProperties' fit, where the device
// does not tell.
RunnerMemory runner_memory(const GraphRunner& runner, const DeviceProperties& device, double of_estimate);

// What is taken now, step results left out. `available`: bytes of the device's memory that are free.
MemoryLedger measure_memory(const RunnerParts& parts, double of_estimate, std::int64_t available);

// One line for logs.
std::string memory_line(const MemoryLedger& ledger);

}  // namespace tessera
