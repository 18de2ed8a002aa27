// Runs a model's vision tower on one device. It takes the patches of images and writes rows of embeddings. There is one
// graph for each budget (a number of patches, to which forwards are padded). A graph runs any images that fit into its
// budget, because their layout is input data.
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
#include "tessera/runner/dispatch/costs.h"
#include "tessera/runner/graphs/graph_runner.h"
#include "tessera/runner/runner_options.h"
#include "tessera/runner/vision/tower_use.h"
#include "tessera/runner/vision/vision_choice.h"
#include "tessera/runner/vision/vision_inputs.h"
#include "tessera/runner/vision/vision_options.h"

namespace tessera {

// Returns the spec of a runner for the tower. The sizes of this runner are numbers of patches.
RunnerSpec vision_spec(const VisionGraph& tower, const VisionOptions& options);

// The objects that the tower runs on. All of them must outlive the runner. They may include the language model's arena
// and workspace, because the model's forwards leave nothing there that a later forward reads.
struct VisionParts {
  const VisionGraph& tower;
  const Weights::Addresses& weights;
  Device& device;
  Stream& stream;
  Arena& arena;
  Arena& workspace;
  KernelVariants& warm;
  const RunnerOptions& options;  // options of the language model
};

struct VisionCounters {
  std::int64_t images = 0;
  std::int64_t patches = 0;         // patches of images
  std::int64_t padded_patches = 0;  // patches of padding
  std::int64_t graph_forwards = 0;
  std::int64_t eager_forwards = 0;
  TowerCounts forwards{};  // the same forwards, counted by budget and reason
};

class VisionRunner {
 public:
  static Result<std::unique_ptr<VisionRunner>> create(const VisionParts& parts, VisionOptions options);

  const VisionConfig& config() const { return parts_.tower.config; }
  // Returns the number of values of a row: (1 + number of DeepStack levels) · hidden size of the language model.
  std::int64_t row_values() const { return config().row_values(); }
  const VisionOptions& options() const { return options_; }
  Device& device() const { return parts_.device; }
  Stream& stream() const { return parts_.stream; }

  // Returns kInvalidArgument if encode() does not accept the image. The image then has too many patches (the message
  // names the limit), or does not match the tower.
  Status check(const Patches& image) const;
  // Encodes images in order. Packs them into as few forwards as possible. If forwards are deterministic, each image
  // gets its own forward. Writes the tokens of image i to consecutive rows of `rows` (device memory, [·, row_values()],
  // the body's type), beginning at row first_rows[i]. Asynchronous on the stream. The caller may reuse the patches when
  // encode() returns. If `eagerly`, replays no graph.
  Status encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, DeviceAddress rows,
                bool eagerly = false);

  // Returns how many of `images`, counted from the first, go into one forward. Precondition: `images` is not empty.
  std::size_t num_packed(std::span<const Patches* const> images) const;

  // Captures the given sizes, which are some of VisionOptions::sizes. If the capture of a size fails, the size is
  // dropped, and the report lists it. The only returned error is kDeviceLost.
  Status capture(std::span<const std::int64_t> sizes);
  // Captures one more size: one that images have needed or, if there is none, the smallest size that has no graph yet.
  // Returns false if none is left. A capture takes milliseconds, so this function is never called while a request
  // waits.
  Result<bool> capture_next();
  bool has_pending() const { return !runner_->pending().empty(); }
  // Returns whether images have needed a size that has no graph yet.
  bool has_wanted() const { return !wanted_.empty(); }
  // Measures one captured size with its graph and without it, so that choose() can compare the two times. The first
  // call measures the smallest size. If a forward takes more than 30 ms, larger sizes are skipped. Returns false if no
  // size is left, if options.measure_costs is off, if forwards are deterministic, or if there are several ranks. Call
  // it only in idle moments.
  Result<bool> measure_next();
  // Returns the measured costs of forwards. Tests may set them.
  CostTable& costs() { return costs_; }

  VisionReason last_reason() const { return last_reason_; }  // reason of the last enqueued forward
  // Returns the numbers of patches that have graphs because of VisionOptions::exact_graphs, ascending.
  std::vector<std::int64_t> exact_sizes() const;
  // Returns the forwards of the most recent encode(), in the order of its images. If encode() failed, returns the
  // forwards that were enqueued before the error.
  std::span<const TowerForward> last_forwards() const { return last_forwards_; }
  const VisionCounters& counters() const { return counters_; }
  GraphRunner& runner() { return *runner_; }  // for the oracle (verify/verify.h), inventories and measurements
  const GraphRunner& runner() const { return *runner_; }
  std::int64_t input_bytes() const { return inputs_->bytes(); }  // bytes of device memory for staged inputs

  // Enqueues a forward on inputs that were staged for `size`. Precondition: `size` is bound.
  Status run(std::int64_t size, bool graph);
  // Stages packed images with padding up to `size`, and uploads the index lists. encode(), captures and the oracle use
  // it.
  Status stage(std::span<const Patches* const> images, std::int64_t size);
  // Makes an executable of the tower in which every value has its own memory, for the oracle. It must not outlive the
  // runner.
  Result<std::unique_ptr<Executable>> make_isolated();
  // Returns how a forward of `patches` patches will run. If `eagerly`, it uses no graph.
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
  // Captures a bound size whose inputs are staged. Returns false if the capture failed. In this case the size runs
  // eagerly.
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
  std::set<std::int64_t> wanted_;  // pending sizes that images have needed
  CostTable costs_;
  std::int64_t measured_below_ = INT64_MAX;  // sizes from this one on take too long to be measured
  std::vector<std::int64_t> exact_;          // sizes with a graph captured on first use, least recently used first
  VisionReason last_reason_ = VisionReason::kNotCaptured;
  std::vector<TowerForward> last_forwards_;
  std::array<bool, kNumVisionReasons> warned_of_{};
  VisionCounters counters_;
};

}  // namespace tessera
