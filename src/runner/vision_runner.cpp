#include "tessera/runner/vision_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/device/alignment.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/make_executable.h"

namespace tessera {
namespace {

// Sizes without a graph are multiples of this too, so that few of them are bound.
constexpr std::int64_t kStep = 64;
constexpr std::int64_t kLargestDefault = 2048;

}  // namespace

std::vector<std::int64_t> default_vision_sizes(std::int64_t merged_patches, std::int64_t max_patches) {
  const std::int64_t step = std::lcm(kStep, merged_patches);
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = step; size <= std::min(kLargestDefault, max_patches); size += step) sizes.push_back(size);
  return sizes;
}

std::string_view vision_reason_name(VisionReason reason) {
  switch (reason) {
    case VisionReason::kReplayed: return "replayed";
    case VisionReason::kFirstUse: return "first use";
    case VisionReason::kTooLarge: return "too large";
    case VisionReason::kNotCaptured: return "not captured";
    case VisionReason::kForced: return "forced";
  }
  return "unknown";
}

RunnerSpec vision_spec(const VisionGraph& tower, const VisionOptions& options) {
  return {.role = RunnerRole::kVision,
          .graph = tower.graph,
          .bucket = vision_bucket,
          .largest = options.max_patches,
          .ladder = options.sizes,
          .captured = !options.sizes.empty(),
          .split_ops = options.split_ops};
}

Result<std::unique_ptr<VisionRunner>> VisionRunner::create(const VisionParts& parts, VisionOptions options) {
  std::unique_ptr<VisionRunner> runner(new VisionRunner(parts, std::move(options)));
  TRY(runner->check_options());
  TRY(runner->build().with_context("the vision tower"));
  return runner;
}

Status VisionRunner::check_options() const {
  const std::int64_t unit = config().merged_patches();
  const auto wrong = [&](std::int64_t size) { return size < unit || size % unit != 0; };
  if (wrong(options_.max_patches))
    return invalid_argument(fmt::format("max_patches is {}; it must be a multiple of {}, the patches of a token",
                                        options_.max_patches, unit));
  for (std::size_t i = 0; i < options_.sizes.size(); ++i)
    if (wrong(options_.sizes[i]) || options_.sizes[i] > options_.max_patches ||
        (i > 0 && options_.sizes[i] <= options_.sizes[i - 1]))
      return invalid_argument(fmt::format("vision size {}; sizes are ascending multiples of {} up to max_patches ({})",
                                          options_.sizes[i], unit, options_.max_patches));
  return ok_status();
}

Status VisionRunner::build() {
  context_.limits.deterministic = parts_.options.deterministic;
  context_.limits.max_tokens = options_.max_patches;
  inputs_ = TRY(VisionInputs::create(parts_.tower.graph, config(), options_.max_patches, parts_.device, step_));
  TRY(step_.allocate(parts_.device, parts_.stream));
  for (const auto& [name, address] : parts_.weights) externals_.add(name, address);
  inputs_->add_to(externals_);

  RunnerSpec spec = vision_spec(parts_.tower, options_);
  std::unique_ptr<Executable> made =
      TRY(make_executable(spec, parts_.options, environment(), parts_.options.memory_plan, /*log=*/true));
  runner_.emplace(std::move(spec), std::move(made));
  return ok_status();
}

ExecutionEnvironment VisionRunner::environment() {
  return {.device = parts_.device,
          .stream = parts_.stream,
          .context = context_,
          .externals = externals_,
          .arena = parts_.arena,
          .workspace = parts_.workspace,
          .warm = parts_.warm,
          .backend = parts_.options.registry->piecewise_backends.of(parts_.device.properties().type)};
}

Status VisionRunner::check(const Patches& image) const {
  const VisionConfig& tower = config();
  if (image.merge_size != tower.merge_size || image.patch_values != tower.patch_values())
    return invalid_argument(fmt::format(
        "patches of {} values, merged {} × {}; the tower takes {} values, merged {} × {}", image.patch_values,
        image.merge_size, image.merge_size, tower.patch_values(), tower.merge_size, tower.merge_size));
  const PatchGrid& grid = image.grid;
  if (grid.t < 1 || grid.h < 1 || grid.w < 1 || grid.h % tower.merge_size != 0 || grid.w % tower.merge_size != 0 ||
      std::ssize(image.values) != grid.patches() * image.patch_values)
    return invalid_argument(
        fmt::format("{} values for a grid of {} × {} × {} patches; its sides must be multiples of {}",
                    image.values.size(), grid.t, grid.h, grid.w, tower.merge_size));
  if (grid.patches() > options_.max_patches)
    return invalid_argument(fmt::format("an image of {} patches; at most {} are accepted, which are {} tokens",
                                        grid.patches(), options_.max_patches,
                                        options_.max_patches / tower.merged_patches()));
  return ok_status();
}

std::int64_t VisionRunner::size_for(std::int64_t patches) const {
  if (options_.exact_graphs > 0) return patches;
  if (const std::optional<std::int64_t> size = round_up(options_.sizes, patches)) return *size;
  return std::min(align_up(patches, std::lcm(kStep, config().merged_patches())), options_.max_patches);
}

Status VisionRunner::encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                            DeviceAddress rows, bool eagerly) {
  if (images.size() != first_rows.size())
    return internal_error(fmt::format("{} images and {} first rows", images.size(), first_rows.size()));
  for (const Patches* image : images) TRY(check(*image));
  // Where an image lies in a forward may decide its last bits.
  const bool alone = parts_.options.deterministic;
  std::size_t first = 0;
  while (first < images.size()) {
    std::size_t count = 1;
    std::int64_t patches = images[first]->grid.patches();
    while (!alone && first + count < images.size() &&
           patches + images[first + count]->grid.patches() <= options_.max_patches)
      patches += images[first + count++]->grid.patches();
    TRY(encode_packed(images.subspan(first, count), first_rows.subspan(first, count), rows, eagerly));
    first += count;
  }
  return ok_status();
}

Status VisionRunner::encode_packed(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                                   DeviceAddress rows, bool eagerly) {
  std::int64_t patches = 0;
  for (const Patches* image : images) patches += image->grid.patches();
  const std::int64_t size = size_for(patches);
  const auto kept = std::ranges::find(exact_, size);
  const bool first_use = options_.exact_graphs > 0 && !eagerly && kept == exact_.end();
  if (kept != exact_.end()) {
    std::rotate(kept, kept + 1, exact_.end());
  } else {
    TRY(first_use ? bind_exact(size) : runner_->make_ready(size));
  }
  TRY(stage(images, size));
  const bool has_graph = first_use ? TRY(capture_exact(size)) : runner_->executable().captured(runner_->bucket(size));
  const bool graph = has_graph && !eagerly;
  TRY(run(size, graph));
  TRY(copy_rows(images, first_rows, size, rows));

  const bool too_large = options_.exact_graphs == 0 && (options_.sizes.empty() || size > options_.sizes.back());
  last_reason_ = graph       ? (first_use ? VisionReason::kFirstUse : VisionReason::kReplayed)
                 : eagerly   ? VisionReason::kForced
                 : too_large ? VisionReason::kTooLarge
                             : VisionReason::kNotCaptured;
  counters_.images += std::ssize(images);
  counters_.patches += patches;
  counters_.padded_patches += size - patches;
  ++(graph ? counters_.graph_forwards : counters_.eager_forwards);
  return ok_status();
}

// Makes room among the graphs that are kept, and binds the size.
Status VisionRunner::bind_exact(std::int64_t size) {
  Executable& executable = runner_->executable();
  if (std::ssize(exact_) == options_.exact_graphs) {
    TRY(parts_.stream.synchronize());  // the graph may still be running
    executable.drop(runner_->bucket(exact_.front()));
    exact_.erase(exact_.begin());
  }
  runner_->forget(size);
  return executable.bind(runner_->bucket(size));
}

Result<bool> VisionRunner::capture_exact(std::int64_t size) {
  Executable& executable = runner_->executable();
  const ir::Bucket bucket = runner_->bucket(size);
  if (TRY(executable.has_cold_kernels(bucket))) TRY(executable.warm_up(bucket));
  const Status captured = executable.capture(bucket);
  if (captured.ok()) {
    exact_.push_back(size);
    return true;
  }
  if (captured.code() == StatusCode::kDeviceLost) return captured;
  log_warn("capture", "vision size {} runs eagerly: {}", size, captured.to_string());
  TRY(runner_->make_ready(size));
  return false;
}

Status VisionRunner::copy_rows(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                               std::int64_t size, DeviceAddress rows) {
  const OutputView made = TRY(runner_->executable().output(runner_->bucket(size), 0));
  const std::int64_t row_bytes = row_values() * static_cast<std::int64_t>(ir::dtype_size(made.dtype));
  std::int64_t row = 0;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::int64_t tokens = images[i]->tokens();
    TRY(parts_.stream.copy(rows + first_rows[i] * row_bytes, made.data + row * row_bytes,
                           static_cast<std::size_t>(tokens * row_bytes)));
    row += tokens;
  }
  return ok_status();
}

Status VisionRunner::stage(std::span<const Patches* const> images, std::int64_t size) {
  TRY(inputs_->stage(images, size, parts_.stream));
  return step_.upload(parts_.stream);
}

Result<std::unique_ptr<Executable>> VisionRunner::make_isolated() {
  return make_executable(runner_->spec(), parts_.options, environment(), MemoryPlanKind::kIsolated, /*log=*/false);
}

Status VisionRunner::run(std::int64_t size, bool graph) { return graph ? runner_->replay(size) : runner_->run(size); }

Result<bool> VisionRunner::capture_next() {
  const std::vector<std::int64_t> pending = runner_->pending();
  if (pending.empty()) return false;
  // Kernels that have not run are warmed up on padding.
  const Status captured = runner_->capture_one(pending.front(), [&](std::int64_t size) { return stage({}, size); });
  if (captured.code() == StatusCode::kDeviceLost) return captured;
  return true;
}

}  // namespace tessera
