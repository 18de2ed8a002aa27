// What a runner is made with. The engine decides it (engine/engine_plan.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/timeline.h"
#include "tessera/ops/contract/op.h"
#include "tessera/piecewise/executable.h"
#include "tessera/runner/capture/registry.h"
#include "tessera/runner/dispatch/rules.h"
#include "tessera/runner/vision/vision_options.h"

namespace tessera {

class Communicator;
class RankGroup;

enum class CaptureMode : std::uint8_t {
  kEager,  // every size at the start
  kLazy,   // a size when it is first wanted
  kCore,   // a few sizes at the start; the others in idle moments, or when first wanted
};

struct RunnerOptions {
  GraphSwitches graphs;
  std::vector<std::int64_t> prefill_sizes;  // tokens, ascending
  std::vector<std::int64_t> decode_sizes;   // requests, ascending
  CaptureMode capture = CaptureMode::kEager;
  bool measure_costs = true;  // in idle moments, for dispatch; never where deterministic
  // Prefill sizes whose forward was measured to be faster as one graph have that graph too, beside the pieces'.
  bool choose_full = false;
  bool debug = false;            // runner/verify/debug_mode.h; slow
  std::int64_t halves_from = 0;  // prefill forwards of so many tokens run in halves (compile/halves.h); 0: none
  bool decode_padding = true;
  std::vector<std::string> split_ops;         // of the prefill runner; empty with graphs.prefill_whole
  std::vector<std::string> decode_split_ops;  // of the decode runner
  std::int64_t decode_query_length = 1;       // tokens that each request of a decode forward adds
  std::shared_ptr<const Registry> registry = shared_built_ins();
  std::string compiler = "eager";  // of the registry
  std::string decode_compiler;     // of decode forwards of up to decode_compiler_max requests; empty: as the others
  std::int64_t decode_compiler_max = 0;
  std::string cache_dir;  // where the compiler keeps what it made; empty: nowhere
  // The cache of that folder, which all executables of one plan share: what its prediction compiled is not compiled
  // again. Used by one thread. Null: each executable opens its own.
  std::shared_ptr<ProfileCache> programs{};
  MemoryPlanKind memory_plan = MemoryPlanKind::kPlanned;
  Planner planner = plan_memory;         // tests plan wrongly on purpose
  const KernelTable* kernels = nullptr;  // null: the device's; tests bind wrong ones on purpose
  std::int64_t max_tokens = 2048;        // of one forward
  std::int64_t max_requests = 256;       // of one forward
  std::int64_t context_length = 2048;    // of one request
  std::int64_t page_size = 16;
  std::int64_t embedding_rows = 0;       // given embeddings that have memory from the start on
  std::vector<std::int64_t> num_pages;   // [cache groups]: pages, or slots of a state group, reserved page 0 included
  VisionOptions vision;                  // of the tower, where the model has one
  Communicator* communicator = nullptr;  // tensor-parallel ranks and stages; null: one
  RankGroup* ranks = nullptr;            // of rank 0, whose runner leads the others'; null: none is led
  int max_in_flight = 2;                 // forwards that are submitted and not collected
  bool deterministic = false;            // ForwardContext::deterministic
  bool show_progress = false;
  Timeline* start = nullptr;  // where making and capturing record their phases; outlives the runner; null: nowhere

  // Pages that every cache group has, the reserved one excluded.
  std::int64_t shared_pages() const {
    return num_pages.empty() ? 0 : *std::min_element(num_pages.begin(), num_pages.end()) - 1;
  }
};

}  // namespace tessera
