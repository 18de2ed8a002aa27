// Measures a vision tower on images of several sizes, in three ways: eagerly, with a graph for each number of patches
// (as in SGLang), and with graphs for a few numbers of patches (budgets). Also measures the host's preparation of
// images.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/progress.h"
#include "tessera/cli/bench/bench.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/image/patches.h"
#include "tessera/load/latency.h"
#include "tessera/runner/vision/vision_runner.h"
#include "tessera/server/images/image_input.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The default sizes. Kernel launches take most of the smallest size's time, and attention takes most of the largest
// size's time.
constexpr ImageSize kUsualSizes[] = {{112, 112}, {224, 224}, {448, 448}, {640, 480}, {896, 896}, {1280, 960}};
constexpr std::int64_t kUsualCounts[] = {1, 4, 16};
constexpr ImageSize kMegapixel = {1280, 800};

// Makes a picture with gradients and some noise.
Image make_image(const ImageSize& size) {
  Image image{.width = static_cast<std::int32_t>(size.width), .height = static_cast<std::int32_t>(size.height)};
  image.rgb.resize(static_cast<std::size_t>(image.pixels() * 3));
  std::uint32_t noise = 1;
  for (std::size_t i = 0; i < image.rgb.size(); ++i) {
    noise = noise * 1664525U + 1013904223U;
    image.rgb[i] = static_cast<std::uint8_t>(i / 3 % 180 + (noise >> 27));
  }
  return image;
}

// A way to run the tower.
struct TowerWay {
  const char* name;
  VisionRunner& runner;
  bool eagerly;
};

// The times of one way to run the tower, in ms.
struct Times {
  std::vector<double> tower{};   // all forwards, from an idle device until it is idle again
  std::vector<double> encode{};  // `tower` plus the host's work: converting, reordering and copying patches
  double first = 0;              // the first encode, including captures
  std::int64_t forwards = 0;
  std::int64_t replays = 0;
  std::int64_t padding = 0;  // number of patches that are padding
};

struct CaseTimes {
  ImageSize size{};
  std::int64_t images = 0;
  std::int64_t patches = 0;             // patches of all images together
  std::int64_t tokens = 0;              // tokens of all images together
  std::vector<double> preprocessing{};  // time for one image on one thread
  std::vector<Times> ways{};
};

class VisionBench {
 public:
  VisionBench(std::vector<TowerWay> ways, const ImageProcessorConfig& processor, std::int64_t repeat)
      : ways_(std::move(ways)), processor_(processor), repeat_(repeat) {}

  Result<CaseTimes> measure(const ImageSize& size, std::int64_t images) {
    const Image pixels = make_image(size);
    CaseTimes result{.size = size, .images = images, .ways = std::vector<Times>(ways_.size())};
    Patches patches;
    for (std::int64_t i = 0; i < repeat_; ++i) {
      const Clock::time_point start = Clock::now();
      patches = TRY(make_patches(pixels, processor_));
      result.preprocessing.push_back(ms_since(start));
    }
    result.patches = images * patches.grid.patches();
    result.tokens = images * patches.tokens();
    packed_.assign(static_cast<std::size_t>(images), &patches);
    first_rows_.clear();
    for (std::int64_t i = 0; i < images; ++i) first_rows_.push_back(i * patches.tokens());
    VisionRunner& tower = ways_.front().runner;
    rows_ = TRY(tower.device().allocate(static_cast<std::size_t>(result.tokens * tower.row_values()) * sizeof(float),
                                        "rows of images"));
    for (std::size_t i = 0; i < ways_.size(); ++i) TRY(begin(ways_[i], result.ways[i]));
    // Each round runs every way once, so that clock rates and temperature are similar for all ways.
    for (std::int64_t round = 0; round < repeat_; ++round) {
      for (std::size_t i = 0; i < ways_.size(); ++i) {
        result.ways[i].encode.push_back(TRY(encode(ways_[i])));
        result.ways[i].tower.push_back(TRY(run_tower(ways_[i])));
      }
    }
    return result;
  }

 private:
  Result<double> encode(const TowerWay& way) {
    const Clock::time_point start = Clock::now();
    TRY(way.runner.encode(packed_, first_rows_, rows_->data(), way.eagerly));
    TRY(way.runner.stream().synchronize());
    return ms_since(start);
  }

  // Encodes the images twice. The first run captures graphs and binds sizes. `times` gets the duration of the first run
  // and the counters of the second run.
  Status begin(const TowerWay& way, Times& times) {
    times.first = TRY(encode(way));
    const VisionCounters before = way.runner.counters();
    TRY(encode(way));
    const VisionCounters& after = way.runner.counters();
    times.replays = after.graph_forwards - before.graph_forwards;
    times.forwards = times.replays + after.eager_forwards - before.eager_forwards;
    times.padding = after.padded_patches - before.padded_patches;
    return ok_status();
  }

  // Times only the forwards. Their inputs are already staged.
  Result<double> run_tower(const TowerWay& way) {
    double ms = 0;
    std::span<const Patches* const> left = packed_;
    while (!left.empty()) {
      const std::span<const Patches* const> now = left.first(way.runner.num_packed(left));
      left = left.subspan(now.size());
      const std::int64_t patches = static_cast<std::int64_t>(now.size()) * now.front()->grid.patches();
      const VisionChoice choice = way.runner.choose(patches, way.eagerly);
      if (choice.reason == VisionReason::kFirstUse)
        return internal_error(fmt::format("no graph of {} patches can be captured", patches));
      TRY(way.runner.stage(now, choice.size));
      TRY(way.runner.stream().synchronize());
      const Clock::time_point start = Clock::now();
      TRY(way.runner.run(choice.size, choice.graph));
      TRY(way.runner.stream().synchronize());
      ms += ms_since(start);
    }
    return ms;
  }

  std::vector<TowerWay> ways_;
  const ImageProcessorConfig& processor_;
  std::int64_t repeat_;
  std::vector<const Patches*> packed_;
  std::vector<std::int64_t> first_rows_;
  std::unique_ptr<Allocation> rows_;
};

// The number of one-megapixel images that `threads` threads prepare per second. Each thread prepares one image at a
// time.
struct Preprocessing {
  int threads = 0;
  double per_second = 0;
};

Result<Preprocessing> measure_preprocessing(const ImageProcessorConfig& processor, std::int64_t each) {
  const Image pixels = make_image(kMegapixel);
  TRY(make_patches(pixels, processor));
  const int threads = worker_threads();
  const Clock::time_point start = Clock::now();
  {
    std::vector<std::jthread> workers;
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&] {
        for (std::int64_t i = 0; i < each; ++i) static_cast<void>(make_patches(pixels, processor).ok());
      });
  }
  return Preprocessing{.threads = threads, .per_second = 1e3 * threads * static_cast<double>(each) / ms_since(start)};
}

// The engine's own tower and, if graphs are on, a second tower that shares its memory and weights. One of the two
// towers has a graph for each budget, and the other has a graph for each number of patches.
class Towers {
 public:
  static Result<Towers> create(ModelRunner& runner) {
    Towers towers(*runner.vision());
    const VisionOptions& own = towers.own_.options();
    if (own.exact_graphs == 0 && own.sizes.empty()) return towers;  // graphs are off
    VisionOptions other = own;
    if (own.exact_graphs > 0) {
      other.exact_graphs = 0;
      other.sizes = default_vision_sizes(towers.own_.config().merged_patches(), own.max_patches);
    } else {
      other.exact_graphs = 32;
      other.sizes.clear();
    }
    towers.other_ = TRY(runner.make_vision(std::move(other)));
    while (TRY(towers.other_->capture_next())) {
    }
    return towers;
  }

  std::vector<TowerWay> ways() {
    std::vector<TowerWay> ways = {{"eager", own_, true}};
    if (other_ == nullptr) return ways;
    const bool own_is_exact = own_.options().exact_graphs > 0;
    ways.push_back({"exact", own_is_exact ? own_ : *other_, false});
    ways.push_back({"budget", own_is_exact ? *other_ : own_, false});
    return ways;
  }

 private:
  explicit Towers(VisionRunner& own) : own_(own) {}
  VisionRunner& own_;
  std::unique_ptr<VisionRunner> other_;  // null: graphs are off
};

struct Case {
  ImageSize size;
  std::int64_t images;
};

// Returns one case for each pair of a requested size and a requested count. If no sizes or no counts are requested,
// uses default ones. If the function uses defaults, it leaves out cases that do not fit into one forward, but always
// keeps the first count of each size.
Result<std::vector<Case>> cases_of(const BenchOptions& options, const ImageProcessorConfig& processor,
                                   std::int64_t max_patches) {
  std::vector<ImageSize> sizes = options.image_sizes;
  std::vector<std::int64_t> counts = options.images;
  const bool usual = sizes.empty() || counts.empty();
  if (sizes.empty()) sizes.assign(std::begin(kUsualSizes), std::end(kUsualSizes));
  if (counts.empty()) counts.assign(std::begin(kUsualCounts), std::end(kUsualCounts));
  std::vector<Case> cases;
  for (const ImageSize& size : sizes) {
    const PatchGrid grid =
        TRY(patch_grid(static_cast<std::int32_t>(size.width), static_cast<std::int32_t>(size.height), processor)
                .with_context("--image-size"));
    for (const std::int64_t count : counts)
      if (!usual || count == counts.front() || count * grid.patches() <= max_patches) cases.push_back({size, count});
  }
  return cases;
}

void add_rows(const CaseTimes& measured, const std::vector<TowerWay>& ways, Table& table, Json& rows) {
  const Distribution preprocessing = distribution(measured.preprocessing);
  const double eager = distribution(measured.ways.front().tower).p50;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Times& times = measured.ways[i];
    const Distribution tower = distribution(times.tower);
    const Distribution encode = distribution(times.encode);
    table.add({fmt::format("{}x{}", measured.size.width, measured.size.height), count_text(measured.images),
               count_text(measured.patches), ways[i].name, number_text(tower.p50), number_text(tower.p99),
               fmt::format("{:.2f}x", eager / tower.p50), number_text(encode.p50), number_text(encode.p99),
               number_text(times.first), count_text(times.forwards), count_text(times.replays),
               count_text(times.padding), number_text(preprocessing.p50), number_text(preprocessing.p99)});
    Json row = Json::object();
    row.set("width", measured.size.width).set("height", measured.size.height).set("images", measured.images);
    row.set("patches", measured.patches).set("tokens", measured.tokens).set("way", ways[i].name);
    row.set("tower_ms_p50", tower.p50).set("tower_ms_p99", tower.p99).set("speedup", eager / tower.p50);
    row.set("encode_ms_p50", encode.p50).set("encode_ms_p99", encode.p99).set("first_ms", times.first);
    row.set("forwards", times.forwards).set("replays", times.replays).set("padding", times.padding);
    row.set("preprocess_ms_p50", preprocessing.p50).set("preprocess_ms_p99", preprocessing.p99);
    rows.push_back(std::move(row));
  }
}

}  // namespace

Status bench_vision(const BenchOptions& options) {
  const std::unique_ptr<Engine> engine = TRY(Engine::create(bench_engine_options(options)));
  ModelRunner& runner = engine->runner();
  const std::optional<ImageInput> input = TRY(image_input_of(*engine));
  if (!input || runner.vision() == nullptr)
    return invalid_argument(
        fmt::format("--model-path: {} has no vision tower; bench vision measures one", options.engine.model_path));
  TRY(runner.capture_rest());
  Towers towers = TRY(Towers::create(runner));
  const std::vector<TowerWay> ways = towers.ways();
  const std::vector<Case> cases = TRY(cases_of(options, input->processor, runner.vision()->options().max_patches));
  VisionBench bench(ways, input->processor, options.repeat);
  Table table({"image", ">images", ">patches", "way", ">tower ms", ">p99", ">speed-up", ">encode ms", ">p99",
               ">first ms", ">forwards", ">replays", ">padding", ">prepare ms", ">p99"});
  Json rows = Json::array();
  Progress progress("Measuring images", std::ssize(cases), "cases", progress_wanted());
  for (const Case& c : cases) {
    add_rows(TRY(bench.measure(c.size, c.images)), ways, table, rows);
    progress.advance(1);
  }
  const Preprocessing rate = TRY(measure_preprocessing(input->processor, options.repeat));
  const double per_thread = rate.per_second / rate.threads;
  Json preprocessing = Json::object();
  preprocessing.set("width", kMegapixel.width).set("height", kMegapixel.height).set("threads", rate.threads);
  preprocessing.set("images_per_s", rate.per_second).set("images_per_s_and_thread", per_thread);
  Json json = bench_header(options, *engine);
  json.set("rows", std::move(rows)).set("preprocessing", std::move(preprocessing));
  if (options.json) return write_output(json.dump() + "\n");
  return write_output(fmt::format("{}{}\n  {} x {} pixels are made into patches at {} images/s on {}, {} on each\n",
                                  bench_title(options, *engine), table.text(), kMegapixel.width, kMegapixel.height,
                                  number_text(rate.per_second), plural(rate.threads, "thread"),
                                  number_text(per_thread)));
}

}  // namespace tessera::cli
