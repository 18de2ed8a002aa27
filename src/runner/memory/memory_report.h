// The memory of a runner by what takes it. One type for what was predicted from shapes, before anything was taken
// (predict_memory), and for what is taken (measure_memory), so that the two are compared entry by entry.
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

// What takes memory: the results of steps on the host, all else on the device.
enum class MemoryUse : std::uint8_t {
  kWeights,
  kKvCache,
  kArena,         // values of forwards: shared by all sizes of all runners
  kWorkspace,     // kernels' scratch: shared likewise
  kStaticInputs,  // of tokens, rows and logit edits; measured: given embeddings too
  kPlans,         // operators' plans: lengths, page tables, the kernels' work lists
  // Measured, where the device does not tell: what captures took of its memory beside arena and workspace, kernels that
  // were loaded meanwhile included.
  kGraphObjects,
  kStepResults,
};
inline constexpr int kNumMemoryUses = 8;
// As metrics and answers name it: "weights" "kv_cache" "arena" "workspace" "static_inputs" "attention" (plans)
// "graph_objects" "step_results".
std::string_view memory_use_name(MemoryUse use);

// The graphs of one size. On a CPU every operator is one launch of known bytes, so that a prediction is exact; on a GPU
// it is DeviceProperties' fit, and some operators are several nodes.
struct GraphMemory {
  std::int64_t graphs = 0;
  std::int64_t nodes = 0;  // kernels, copies and fills; predicted: operators
  std::int64_t bytes = 0;  // where the device does not tell, the size's share of what all captures took
};

struct SizeMemory {
  std::int64_t size = 0;
  GraphMemory graphs{};  // none in a prediction where the runner makes no graphs
  MemoryNeed need{};     // of arena and workspace: in a prediction of every size only
};

// One of kCapturedRoles, or the tower: a prediction has every size of the ladder, a measurement those that are
// captured.
struct RunnerMemory {
  RunnerRole role = RunnerRole::kPrefill;
  std::vector<SizeMemory> sizes{};
  std::int64_t graph_bytes() const;
};

class MemoryReport {
 public:
  // Bytes; 0 for what the report does not have.
  std::int64_t operator[](MemoryUse use) const { return bytes_[static_cast<std::size_t>(use)].value_or(0); }
  void set(MemoryUse use, std::int64_t bytes) { bytes_[static_cast<std::size_t>(use)] = bytes; }

  // What the report has, in the order of MemoryUse; without what is on the host.
  using Entries = std::vector<std::pair<MemoryUse, std::int64_t>>;
  Entries entries() const;
  Entries device_entries() const;
  // Arena, workspace, static inputs and plans: what forwards need on the device, with graphs or without.
  std::int64_t forwards() const;
  // Null where the report has none of the role.
  const RunnerMemory* runner(RunnerRole role) const;

  std::vector<RunnerMemory> runners{};  // in the order of kCapturedRoles, then the tower where there is one
  std::int64_t available = 0;           // measured: what is free on the device at the end of capture

 private:
  std::array<std::optional<std::int64_t>, kNumMemoryUses> bytes_{};
};

// One line for logs.
std::string memory_line(const MemoryReport& taken, const MemoryReport& predicted);

}  // namespace tessera
