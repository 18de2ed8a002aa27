// The options of a runner. The engine decides them (engine/plan/engine_plan.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/step_limits.h"
#include "tessera/base/timeline.h"
#include "tessera/comm/exchange_place.h"
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
  kLazy,   // each size when it is first used
  kCore,   // a few sizes at the start, and the others in idle moments or when they are first used
};

struct RunnerOptions : StepLimits {
  GraphSwitches graphs;
  std::vector<std::int64_t> prefill_sizes;  // tokens, ascending
  std::vector<std::int64_t> decode_sizes;   // rows (requests and their drafts), ascending
  CaptureMode capture = CaptureMode::kEager;
  // If true, the runner measures the costs of forwards in idle moments, unless forwards are deterministic. Dispatch
  // uses the measured costs.
  bool measure_costs = true;
  // If true, the full graph of a prefill size is measured against the size's pieces. If the full graph is faster than
  // the pieces, the size keeps both.
  bool choose_full = false;
  bool debug = false;  // runs every forward in debug mode (runner/verify/debug_mode.h), which is slow
  // Prefill forwards of at least this many tokens run as two halves (compile/halves.h). 0: none do.
  std::int64_t halves_from = 0;
  bool decode_padding = true;
  // Operators at which prefill graphs are cut. The list is empty if graphs.prefill_whole is set.
  std::vector<std::string> split_ops;
  std::vector<std::string> decode_split_ops;  // operators at which decode graphs are cut
  std::int64_t max_drafts = 0;                // maximum number of drafts of a request in a forward
  std::shared_ptr<const Registry> registry = shared_built_ins();
  std::string compiler = "eager";  // a compiler of the registry
  // The name of the compiler for decode forwards of up to decode_compiler_max requests. If empty, `compiler` compiles
  // these forwards too.
  std::string decode_compiler;
  std::int64_t decode_compiler_max = 0;
  std::string cache_dir;  // folder in which the compiler keeps compiled programs; if empty, it keeps none
  // The cache in the folder cache_dir. The memory prediction and the runner share this object, so the runner does not
  // recompile the programs that the prediction has compiled. Only one thread may use it. If null, each executable opens
  // its own cache.
  std::shared_ptr<ProfileCache> programs{};
  MemoryPlanKind memory_plan = MemoryPlanKind::kPlanned;
  Planner planner = plan_memory;         // tests replace it with a faulty planner
  const KernelTable* kernels = nullptr;  // if null, the device's kernels; tests use faulty kernels
  std::int64_t embedding_rows = 0;       // number of embedding rows that have memory from the start
  // For each cache group, the number of pages (or slots, in a state group), including the reserved page 0.
  std::vector<std::int64_t> num_pages;
  VisionOptions vision;  // options of the vision tower, if the model has one
  ExchangePlace place;   // the ranks with which this rank exchanges data, which the memory prediction uses
  Communicator* communicator = nullptr;  // for tensor-parallel ranks and pipeline stages; null if there is one rank
  // The other ranks, which follow this runner. Set only on rank 0 of several ranks, and otherwise null.
  RankGroup* ranks = nullptr;
  int max_in_flight = 2;       // maximum number of forwards that are submitted and not yet collected
  bool deterministic = false;  // ForwardContext::deterministic
  bool show_progress = false;
  // Records the phases of creating and capturing the runner, unless it is null. Must outlive the runner.
  Timeline* start = nullptr;

  // Questions about the devices that run the model's forwards together.
  //
  // Returns whether no other device takes part in the forwards.
  bool runs_alone() const;
  // Returns whether the layers are divided into pipeline stages, and this device has one stage.
  bool has_stages() const;
  // Returns whether this runner decides how forwards run. It does so if it runs alone or if other runners follow it.
  bool decides() const { return communicator == nullptr || ranks != nullptr; }
  // Returns whether this runner logs the work that all devices do alike.
  bool logs_common_work() const;

  // Returns the smallest number of pages of any cache group, not counting the reserved page.
  std::int64_t shared_pages() const {
    return num_pages.empty() ? 0 : *std::min_element(num_pages.begin(), num_pages.end()) - 1;
  }
};

}  // namespace tessera
