// A model's vision tower on one device: takes images' patches and writes rows of embeddings. One graph for each budget
// of patches runs any images that fit, because their layout is data.
//
//   VisionRunner* vision = runner.vision();                    null: the model has no tower
//   const Patches* images[] = {&first, &second};
//   const std::int64_t rows[] = {0, first.tokens()};
//   TRY(vision->encode(images, rows, address));                enqueued; the next forward may read the rows
//
// Threads: the model runner's thread. All work goes to its stream, between two forwards.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/image/patches.h"
#include "tessera/model/model.h"
#include "tessera/model/weights/weights.h"
#include "tessera/ops/contract/step_buffer.h"
#include "tessera/runner/capture/graph_runner.h"
#include "tessera/runner/dispatch/costs.h"
#include "tessera/runner/runner_options.h"
#include "tessera/runner/vision/tower_use.h"
#include "tessera/runner/vision/vision_choice.h"
#include "tessera/runner/vision/vision_inputs.h"
#include "tessera/runner/vision/vision_options.h"

namespace tessera {

// Describes the tower as a runner; a size is a number of patches.
RunnerSpec vision_spec(const VisionGraph& tower, const VisionOptions& options);

// The objects that the tower runs on. All of them must outlive the runner. The language model may use the same arena
// and workspace, because its forwards leave nothing there that a later forward reads.
struct VisionParts {
  const VisionGraph& tower;
  const Weights::Addresses& weights;
  Device& device;
  Stream& stream;
  Arena& arena;
  Arena& workspace;
  KernelVariants& warm;
  const RunnerOptions& options;  // registry, kernels, compiler and memory plan are used
};

struct VisionCounters {
  std::int64_t images = 0;
  std::int64_t patches = 0;         // patches of images
  std::int64_t padded_patches = 0;  // padded patches
  std::int64_t graph_forwards = 0;
  std::int64_t eager_forwards = 0;
  TowerCounts forwards{};  // the same forwards by budget and reason
};

class VisionRunner {
 public:
  static Result<std::unique_ptr<VisionRunner>> create(const VisionParts& parts, VisionOptions options);

  const VisionConfig& config() const { return parts_.tower.config; }
  // Returns the number of values of a row: (1 + deepstack levels) · hidden size of the language model.
  std::int64_t row_values() const { return config().row_values(); }
  const VisionOptions& options() const { return options_; }
  Device& device() const { return parts_.device; }
  Stream& stream() const { return parts_.stream; }

  // Returns kInvalidArgument for an image that encode() refuses: one with too many patches (the message names the
  // limit), or one that does not match the tower.
  Status check(const Patches& image) const;
  // Encodes images, packed in order into as few forwards as possible; deterministic forwards hold one image each. Image
  // i's tokens are written in order to `rows` (device memory, [·, row_values()], the body's type) from row
  // first_rows[i] on. Asynchronous on the stream; the patches may be reused when it returns. `eagerly`: no graph is
  // replayed.
  Status encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, DeviceAddress rows,
                bool eagerly = false);

  // Returns how many of `images`, from the first on, go into one forward. Precondition: `images` is not empty.
  std::size_t num_packed(std::span<const Patches* const> images) const;

  // Captures sizes of the options at the start. A size that fails is dropped and reported. Errors: kDeviceLost.
  Status capture(std::span<const std::int64_t> sizes);
  // Captures one more size: one that an image came for, or else the smallest. Returns false if none is left. It takes
  // milliseconds, so it is never called on the request path.
  Result<bool> capture_next();
  bool has_pending() const { return !runner_->pending().empty(); }
  // Returns whether images came for a size that has no graph yet.
  bool has_wanted() const { return !wanted_.empty(); }
  // Measures one captured size as a graph and eagerly, for the choice between the two; smallest first, and no larger
  // ones after a forward of more than 30 ms. Returns false if none is left, if options.measure_costs is off, if
  // forwards are deterministic, and on several ranks. Called in idle moments.
  Result<bool> measure_next();
  // Returns the measured costs of forwards; tests set them.
  CostTable& costs() { return costs_; }

  VisionReason last_reason() const { return last_reason_; }  // reason of the last enqueued forward
  // Returns the numbers of patches that have graphs with VisionOptions::exact_graphs, ascending.
  std::vector<std::int64_t> exact_sizes() const;
  // Returns the forwards of the last encode(), in the order of its images; after an error those enqueued before it.
  std::span<const TowerForward> last_forwards() const { return last_forwards_; }
  const VisionCounters& counters() const { return counters_; }
  GraphRunner& runner() { return *runner_; }  // for the oracle, inventories and measurements
  const GraphRunner& runner() const { return *runner_; }
  std::int64_t input_bytes() const { return inputs_->bytes(); }  // bytes of device memory for staged inputs

  // Enqueues a forward with inputs that were staged for `size`, which must be bound.
  Status run(std::int64_t size, bool graph);
  // Stages packed images, padded to `size`; for the oracle and captures.
  Status stage(std::span<const Patches* const> images, std::int64_t size);
  // Makes an executable of the tower in which every value has its own memory, for the oracle. It must not outlive the
  // runner.
  Result<std::unique_ptr<Executable>> make_isolated();
  // Returns how a forward of `patches` patches runs; `eagerly`: without a graph.
  VisionChoice choose(std::int64_t patches, bool eagerly = false) const;

 private:
  VisionRunner(const VisionParts& parts, VisionOptions options) : parts_(parts), options_(std::move(options)) {}
  Status check_options() const;
  Status build();
  ExecutionEnvironment environment();
  Status encode_packed(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                       DeviceAddress rows, bool eagerly);
  void count(const TowerForward& forward);
  void log(const TowerForward& forward);
  Result<double> measure(std::int64_t size, bool graph);
  Status capture_one(std::int64_t size);
  Status bind_exact(std::int64_t size);
  // Captures a bound size whose inputs are staged. Returns false if the capture failed; the size then runs eagerly.
  Result<bool> capture_exact(std::int64_t size);
  Status copy_rows(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, std::int64_t size,
                   DeviceAddress rows);

  VisionParts parts_;
  VisionOptions options_;
  ForwardContext context_;
  StepBuffer step_;
  std::unique_ptr<VisionInputs> inputs_;
  ExternalValues externals_;
  std::optional<GraphRunner> runner_;
  std::set<std::int64_t> wanted_;  // pending sizes that images came for
  CostTable costs_;
  std::int64_t measured_below_ = INT64_MAX;  // larger sizes take too long to be measured
  std::vector<std::int64_t> exact_;          // sizes with a graph captured on first use, least recently used first
  VisionReason last_reason_ = VisionReason::kNotCaptured;
  std::vector<TowerForward> last_forwards_;
  std::array<bool, kNumVisionReasons> warned_of_{};
  VisionCounters counters_;
};

}  // namespace tessera
