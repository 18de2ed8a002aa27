// Measures a vision tower at its real size with random weights: as one graph, as graphs cut at attention and eagerly,
// the tower alone and with what the host does for it.
//   build/vision_bench CONFIG.json DEVICE [HxWxN …]      N images of H × W patches; the default is a table of both
// Prints what captures cost and whether every budget's graph equals isolated memory. Medians, in ms.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tessera/model/config.h"
#include "tessera/model/weight_source.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/device_registry.h"
#include "tessera/runner/verify_vision.h"
#include "tessera/runner/vision_runner.h"

using namespace tessera;

namespace {

constexpr std::int64_t kMaxPatches = 16384;

struct Case {
  int height = 0;  // patches
  int width = 0;
  int images = 0;
};

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Patches make_image(const VisionConfig& config, const Case& c) {
  Patches image{.grid = {.t = 1, .h = c.height, .w = c.width},
                .merge_size = static_cast<std::int32_t>(config.merge_size),
                .patch_values = config.patch_values()};
  image.values.resize(static_cast<std::size_t>(image.grid.patches() * image.patch_values));
  for (std::size_t i = 0; i < image.values.size(); ++i) image.values[i] = static_cast<float>(i * 7919 % 997) / 500 - 1;
  return image;
}

struct Times {
  double tower = 0;
  double with_host = 0;
};

Result<Times> measure(VisionRunner& runner, const Patches& image, int images, DeviceAddress rows, bool eagerly) {
  const std::vector<const Patches*> packed(static_cast<std::size_t>(images), &image);
  std::vector<std::int64_t> first_rows;
  for (int i = 0; i < images; ++i) first_rows.push_back(i * image.tokens());
  const std::int64_t size = runner.choose(image.grid.patches() * images).size;
  const bool graph = !eagerly && runner.runner().captured(size);
  std::vector<double> with_host;
  std::vector<double> tower;
  for (int i = 0; i < 15; ++i) {
    auto begin = std::chrono::steady_clock::now();
    TRY(runner.encode(packed, first_rows, rows, eagerly));
    TRY(runner.stream().synchronize());
    with_host.push_back(ms_since(begin));
    begin = std::chrono::steady_clock::now();
    TRY(runner.run(size, graph));
    TRY(runner.stream().synchronize());
    tower.push_back(ms_since(begin));
  }
  return Times{.tower = median(tower), .with_host = median(with_host)};
}

Status measure_all(VisionRunner& runner, Device& device, const char* form, const std::vector<Case>& cases) {
  const std::int64_t most_rows = kMaxPatches / (runner.config().merge_size * runner.config().merge_size);
  const auto rows =
      TRY(device.allocate(static_cast<std::size_t>(most_rows * runner.row_values()) * sizeof(float), "rows"));
  for (const Case& c : cases) {
    const Patches image = make_image(runner.config(), c);
    const Times graph = TRY(measure(runner, image, c.images, rows->data(), false));
    const std::string reason(vision_reason_name(runner.last_reason()));
    const Times eager = TRY(measure(runner, image, c.images, rows->data(), true));
    fmt::print("{} {}x{} x{}: graph {:.3f} eager {:.3f} ({:+.1f} %), with the host {:.3f} {:.3f}, {}\n", form, c.height,
               c.width, c.images, graph.tower, eager.tower, 100 * (eager.tower / graph.tower - 1), graph.with_host,
               eager.with_host, reason);
  }
  return ok_status();
}

Status run(const std::string& path, const std::string& device_name, const std::vector<Case>& cases) {
  const FamilyRegistry families = built_in_families();
  const ModelConfig config = TRY(ModelConfig::read(path, families));
  if (!config.vision) return invalid_argument(fmt::format("{} has no vision_config", path));
  const DeviceRegistry devices = built_in_devices();
  const std::unique_ptr<Device> device = TRY(devices.open(device_name));
  ModelGraphs graphs = TRY(build_model(config, {.dtype = ir::DType::kBFloat16}, built_in_ops(), families));
  std::erase_if(graphs.weights,
                [&](const WeightSpec& spec) { return !spec.name.starts_with(config.vision->tensor_prefix); });
  const Weights weights = TRY(Weights::load(graphs.weights, dummy_source(1), *device, false));
  for (const bool pieces : {false, true}) {
    const auto stream = TRY(device->create_stream("main"));
    const auto arena = TRY(device->create_arena({.reserve_bytes = std::size_t{8} << 30, .name = "arena"}));
    const auto workspace = TRY(device->create_arena({.reserve_bytes = std::size_t{2} << 30, .name = "workspace"}));
    KernelVariants warm;
    const RunnerOptions options;
    VisionOptions vision{
        .max_patches = kMaxPatches,
        .sizes = default_vision_sizes(config.vision->merge_size * config.vision->merge_size, kMaxPatches)};
    for (const std::int64_t size : {3072, 4096}) vision.sizes.push_back(size);  // beside the default ones
    if (pieces) vision.split_ops = {"segment_attention"};
    const auto runner = TRY(VisionRunner::create({.tower = *graphs.vision,
                                                  .weights = weights.addresses(),
                                                  .device = *device,
                                                  .stream = *stream,
                                                  .arena = *arena,
                                                  .workspace = *workspace,
                                                  .warm = warm,
                                                  .options = options},
                                                 vision));
    const char* form = pieces ? "pieces" : "full";
    const auto begin = std::chrono::steady_clock::now();
    while (TRY(runner->capture_next())) {
    }
    TRY(stream->synchronize());
    fmt::print("{}: {} sizes captured in {:.0f} ms\n", form, vision.sizes.size(), ms_since(begin));
    const std::vector<VerifyRow> compared = TRY(verify_vision(*runner));
    const auto differ = std::ranges::count_if(compared, [](const VerifyRow& row) { return !row.difference.empty(); });
    fmt::print("{}: {} forwards compared, {} differ\n", form, compared.size(), differ);
    TRY(measure_all(*runner, *device, form, cases));
  }
  return ok_status();
}

std::vector<Case> default_cases() {
  std::vector<Case> cases;
  for (const auto& [height, width] : {std::pair{8, 8}, {16, 16}, {24, 28}, {32, 32}, {48, 48}, {64, 64}}) {
    for (const int images : {1, 4, 16})
      if (height * width * images <= kMaxPatches) cases.push_back({height, width, images});
  }
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Case> cases;
  for (int i = 3; i < argc; ++i) {
    Case c;
    if (std::sscanf(argv[i], "%dx%dx%d", &c.height, &c.width, &c.images) != 3 || c.height < 1 || c.width < 1 ||
        c.images < 1 || std::int64_t{c.height} * c.width * c.images > kMaxPatches) {
      fmt::print(stderr, "\"{}\" is not accepted; HxWxN, {} patches in all at most\n", argv[i], kMaxPatches);
      return EXIT_FAILURE;
    }
    cases.push_back(c);
  }
  if (argc < 3) {
    fmt::print(stderr, "usage: {} CONFIG.json DEVICE [HxWxN …]\n", argv[0]);
    return EXIT_FAILURE;
  }
  const Status done = run(argv[1], argv[2], cases.empty() ? default_cases() : cases);
  if (!done.ok()) fmt::print(stderr, "{}\n", done.to_string());
  return done.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
