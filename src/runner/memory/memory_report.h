// A ModelRunner's memory by use. Predictions made from shapes (predict_memory) and measurements (measure_memory) share
// this type, so they can be compared entry by entry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/piecewise/executable.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// What the memory is used for. Step results lie in host memory, and everything else lies in device memory.
enum class MemoryUse : std::uint8_t {
  kWeights,
  kKvCache,
  kArena,      // activations of forwards; all sizes of all runners share it
  kWorkspace,  // kernels' scratch memory, shared in the same way
  // Inputs of forwards: tokens, rows, logit edits, inputs of the vision tower, hidden states for drafts, and embedding
  // rows. Embedding rows may get memory later. A prediction counts the rows that have memory from the start, and a
  // measurement counts the rows that have memory when it is taken.
  kStaticInputs,
  kPlans,  // operators' plans, which are lengths, page tables and the kernels' lists of work
  // Memory for exchanges with other ranks: mailboxes, links between stages, and NCCL's memory. On a CPU, this memory
  // holds values received from other stages and nodes. A prediction counts the largest possible size of this memory,
  // and a measurement counts the memory taken until now.
  kCommunication,
  // The objects of captured graphs. If the device does not report graph memory, the measured value is the device memory
  // that captures took outside arena and workspace. This value includes kernels that were loaded during the captures.
  kGraphObjects,
  kStepResults,
  kAdapters,  // the slots of low-rank adapters, if adapters are served
};
inline constexpr int kNumMemoryUses = 10;
// Returns the name that a use has in metrics and in JSON reports: "weights" "kv_cache" "arena" "workspace"
// "static_inputs" "attention" (for plans) "communication" "graph_objects" "step_results" "adapters".
std::string_view memory_use_name(MemoryUse use);

// The graphs of one size, which is a number of rows or patches that forwards are padded to. On a CPU every operator
// becomes one launch, which takes a known number of bytes, so a prediction is exact. On a GPU a prediction is an
// estimate, because it uses the estimated sizes in DeviceProperties and because some operators become several nodes.
struct GraphMemory {
  std::int64_t graphs = 0;
  std::int64_t nodes = 0;  // kernels, copies and fills; in a prediction, operators
  // The bytes of the graphs. If the device does not report graph memory, this is the size's share of the memory of all
  // captures.
  std::int64_t bytes = 0;
};

struct SizeMemory {
  std::int64_t size = 0;
  GraphMemory graphs{};  // empty in a prediction if the runner makes no graphs
  // The memory that the size needs in arena and workspace. Only predictions with PredictionDetail::kEverySize contain
  // it.
  MemoryNeed need{};
};

// The memory of one runner. The role of the runner is one of kCapturedRoles or, for the vision tower, kVision. A
// prediction has an entry for every size of the ladder (RunnerSpec::ladder), and a measurement has an entry for every
// captured size.
struct RunnerMemory {
  RunnerRole role = RunnerRole::kPrefill;
  std::vector<SizeMemory> sizes{};
  std::int64_t graph_bytes() const;
};

class MemoryReport {
 public:
  // Returns the bytes of a use, or 0 if the report does not contain the use.
  std::int64_t operator[](MemoryUse use) const { return bytes_[static_cast<std::size_t>(use)].value_or(0); }
  void set(MemoryUse use, std::int64_t bytes) { bytes_[static_cast<std::size_t>(use)] = bytes; }

  // The uses in the report, in the order of MemoryUse. device_entries() leaves out host memory.
  using Entries = std::vector<std::pair<MemoryUse, std::int64_t>>;
  Entries entries() const;
  Entries device_entries() const;
  // Returns the sum of arena, workspace, static inputs, plans, communication and adapters: the device memory of
  // forwards without their graphs.
  std::int64_t forwards() const;
  // Returns the memory of the runner with this role, or null if the report has no such runner.
  const RunnerMemory* runner(RunnerRole role) const;

  std::vector<RunnerMemory> runners{};  // in the order of kCapturedRoles, then the tower if the model has one
  std::int64_t available = 0;           // only in a measurement: free device memory at the end of capture

 private:
  std::array<std::optional<std::int64_t>, kNumMemoryUses> bytes_{};
};

// Returns a log line that compares the two reports.
std::string memory_line(const MemoryReport& taken, const MemoryReport& predicted);

}  // namespace tessera
