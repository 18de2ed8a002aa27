#include "tessera/runner/vision/vision_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/piecewise/ladder.h"
#include "tessera/runner/graphs/make_executable.h"

namespace tessera {
namespace {

// If a forward runs without a graph, its size is rounded up to a multiple of kStep, so that few different sizes are
// bound.
constexpr std::int64_t kStep = 64;
// Several images are packed into one forward only if they have at most this many patches together. The limit keeps
// forwards short, because decoding requests wait until the forward has ended.
constexpr std::int64_t kMostPacked = 16384;
// If the measurement of a size takes longer than this, no larger size is measured, so that requests do not wait for
// long measurements.
constexpr double kMostMeasuredMs = 30;

}  // namespace

std::vector<std::int64_t> default_vision_sizes(std::int64_t merged_patches, std::int64_t max_patches) {
  const std::int64_t step = std::lcm(kStep, merged_patches);
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = step; size < max_patches;) {
    sizes.push_back(size);
    const auto sixteenths = std::bit_floor(static_cast<std::uint64_t>(size / (16 * kStep)));
    size += step * std::max<std::int64_t>(1, static_cast<std::int64_t>(sixteenths));
  }
  sizes.push_back(max_patches);
  return sizes;
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

VisionChoice VisionRunner::choose(std::int64_t patches, bool eagerly) const {
  if (options_.exact_graphs > 0 && !eagerly) {
    const bool kept = std::ranges::find(exact_, patches) != exact_.end();
    return {.size = patches, .graph = true, .reason = kept ? VisionReason::kReplayed : VisionReason::kFirstUse};
  }
  const std::int64_t step = options_.exact_graphs > 0 ? 1 : std::lcm(kStep, config().merged_patches());
  VisionBudgets budgets{
      .sizes = options_.sizes, .captured = {}, .costs = costs_, .step = step, .enabled = options_.graphs};
  if (!eagerly) budgets.captured = runner_->report().captured;
  VisionChoice choice = choose_budget(budgets, patches);
  choice.size = std::min(choice.size, options_.max_patches);
  if (eagerly) choice.reason = VisionReason::kForced;
  if (choice.reason == VisionReason::kNotCaptured && runner_->dropped(*round_up(options_.sizes, patches)))
    choice.reason = VisionReason::kDropped;
  return choice;
}

std::size_t VisionRunner::num_packed(std::span<const Patches* const> images) const {
  std::size_t count = 1;
  // Packs no images together, because the place of an image in a forward may change the last bits of the image's rows.
  if (parts_.options.deterministic) return count;
  std::int64_t patches = images.front()->grid.patches();
  const std::int64_t most = std::min(options_.max_patches, kMostPacked);
  while (count < images.size() && patches + images[count]->grid.patches() <= most)
    patches += images[count++]->grid.patches();
  return count;
}

Status VisionRunner::encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                            DeviceAddress rows, bool eagerly) {
  if (images.size() != first_rows.size())
    return internal_error(fmt::format("{} images and {} first rows", images.size(), first_rows.size()));
  for (const Patches* image : images) TRY(check(*image));
  last_forwards_.clear();
  while (!images.empty()) {
    const std::size_t count = num_packed(images);
    TRY(encode_packed(images.first(count), first_rows.first(count), rows, eagerly));
    images = images.subspan(count);
    first_rows = first_rows.subspan(count);
  }
  return ok_status();
}

Status VisionRunner::encode_packed(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                                   DeviceAddress rows, bool eagerly) {
  std::int64_t patches = 0;
  for (const Patches* image : images) patches += image->grid.patches();
  VisionChoice choice = choose(patches, eagerly);
  const bool first_use = choice.reason == VisionReason::kFirstUse;
  if (const auto kept = std::ranges::find(exact_, choice.size); kept != exact_.end()) {
    std::rotate(kept, kept + 1, exact_.end());
  } else {
    TRY(first_use ? bind_exact(choice.size) : runner_->make_ready(choice.size));
  }
  TRY(stage(images, choice.size));
  if (first_use && !TRY(capture_exact(choice.size)))
    choice = {.size = choice.size, .graph = false, .reason = VisionReason::kDropped};
  TRY(run(choice.size, choice.graph));
  TRY(copy_rows(images, first_rows, choice.size, rows));
  count({.images = images.size(), .patches = patches, .how = choice});
  return ok_status();
}

void VisionRunner::count(const TowerForward& forward) {
  if (const std::optional<std::int64_t> own = round_up(options_.sizes, forward.patches);
      own && !runner_->captured(*own) && !runner_->dropped(*own))
    wanted_.insert(*own);
  last_reason_ = forward.how.reason;
  last_forwards_.push_back(forward);
  counters_.images += static_cast<std::int64_t>(forward.images);
  counters_.patches += forward.patches;
  counters_.padded_patches += forward.how.size - forward.patches;
  ++(forward.how.graph ? counters_.graph_forwards : counters_.eager_forwards);
  counters_.forwards.add(forward);
  log(forward);
}

void VisionRunner::log(const TowerForward& forward) {
  const VisionReason reason = forward.how.reason;
  const bool warn = is_fallback(reason) && !std::exchange(warned_of_[static_cast<std::size_t>(reason)], true);
  const LogLevel level = warn ? LogLevel::kWarn : LogLevel::kDebug;
  if (!log_enabled("dispatch", level)) return;
  log_line("dispatch", level,
           fmt::format("vision tower, {} patches of {} images: {} {}, padding {}: {}{}", forward.patches,
                       forward.images, forward.how.graph ? "graph" : "fallback to eager", forward.how.size,
                       forward.how.size - forward.patches, vision_reason_text(reason),
                       warn ? " (further ones of this reason are logged at debug level)" : ""));
}

std::vector<std::int64_t> VisionRunner::exact_sizes() const {
  std::vector<std::int64_t> sizes = exact_;
  std::ranges::sort(sizes);
  return sizes;
}

// Drops the least recently used graph if the limit is reached, and binds the size.
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

Status VisionRunner::capture(std::span<const std::int64_t> sizes) {
  return runner_->capture_each(sizes, parts_.options.show_progress,
                               [&](std::int64_t size) { return capture_one(size); });
}

// Captures one size. Kernels that have not run yet first run on a forward of padding only.
Status VisionRunner::capture_one(std::int64_t size) {
  return runner_->capture_one(size, [&](std::int64_t staged) { return stage({}, staged); });
}

Result<bool> VisionRunner::capture_next() {
  const std::vector<std::int64_t> pending = runner_->pending();
  if (pending.empty()) return false;
  const std::int64_t next = wanted_.empty() ? pending.front() : *wanted_.begin();
  const Status captured = capture_one(next);
  wanted_.erase(next);
  if (captured.code() == StatusCode::kDeviceLost) return captured;
  return true;
}

Result<bool> VisionRunner::measure_next() {
  // Several ranks measure nothing. All ranks must make the same choice, but if each rank used its own measured times,
  // the choices could differ.
  if (!parts_.options.measure_costs || parts_.options.deterministic || !parts_.options.runs_alone()) return false;
  for (const std::int64_t size : runner_->report().captured) {
    if (size >= measured_below_) break;
    if (costs_.measured(RunnerKind::kPrefill, size)) continue;
    const Result<double> replay = measure(size, /*graph=*/true);
    const Result<double> eager = replay.ok() ? measure(size, /*graph=*/false) : replay;
    if (!eager.ok()) {
      if (eager.status().code() == StatusCode::kDeviceLost) return eager.status();
      log_warn("dispatch", "vision size {} is not measured: {}", size, eager.status().to_string());
      measured_below_ = size;
      return true;
    }
    costs_.add(RunnerKind::kPrefill, size, *replay);
    costs_.add(RunnerKind::kEager, size, *eager);
    if (std::max(*replay, *eager) > kMostMeasuredMs) measured_below_ = size + 1;
    return true;
  }
  return false;
}

// Runs the tower a few times with one image that fills the forward. Returns the shortest time, measured on the host.
Result<double> VisionRunner::measure(std::int64_t size, bool graph) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 3;
  Patches image{.grid = {.t = 1,
                         .h = static_cast<std::int32_t>(config().merge_size),
                         .w = static_cast<std::int32_t>(size / config().merge_size)},
                .merge_size = static_cast<std::int32_t>(config().merge_size),
                .patch_values = config().patch_values()};
  image.values.resize(static_cast<std::size_t>(size * image.patch_values));
  const Patches* const filling = &image;
  TRY(stage(std::span(&filling, 1), size));
  TRY(parts_.stream.synchronize());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const Clock::time_point start = Clock::now();
    TRY(run(size, graph));
    TRY(parts_.stream.synchronize());
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

}  // namespace tessera
