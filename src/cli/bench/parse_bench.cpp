#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "tessera/cli/bench/parse_bench_serve.h"
#include "tessera/cli/command_parser.h"
#include "tessera/options/values.h"

namespace tessera::cli {
namespace {

// The default number of rounds of a comparison. With this many rounds, the confidence interval of a median is narrower
// than the difference to detect, which is one percent.
constexpr std::int64_t kComparedRepeat = 50;

// Parses a list of image sizes such as "224x224,1280x960".
Result<std::vector<ImageSize>> parse_image_sizes(const std::string& flag, const std::string& text) {
  constexpr std::int64_t kMostSide = 16384;
  std::vector<ImageSize> sizes;
  for (const std::string& name : TRY(parse_names(flag, text))) {
    const std::size_t x = name.find('x');
    const auto side = [&](std::size_t from, std::size_t count) {
      return parse_integer(flag, std::string_view(name).substr(from, count), {1, kMostSide});
    };
    const Result<std::int64_t> width = side(0, std::min(x, name.size()));
    const Result<std::int64_t> height = x == std::string::npos ? width : side(x + 1, std::string::npos);
    if (x == std::string::npos || !width.ok() || !height.ok())
      return invalid_argument(
          fmt::format("{}: \"{}\" is not accepted; width x height of 1 to {} pixels each, like 224x224,1280x960", flag,
                      name, kMostSide));
    sizes.push_back({.width = *width, .height = *height});
  }
  return sizes;
}

class BenchParser final : public CommandParser {
 public:
  BenchParser(CommandFlags& add, CommonFlags& common) {
    add.group("Measurement");
    add.word("what", "prefill|decode|graphs|startup|profile|vision|serve", "what to measure",
             [this](const std::string&, const std::string& text) {
               what_ = text;
               return ok_status();
             });
    add.sizes("--num-tokens", "of bench prefill, graphs and profile", options_.num_tokens);
    add.sizes("--batch-size", "of bench decode, graphs and profile", options_.batch_sizes);
    add.value("--context", "N", "with --batch-size: cached tokens of each request (128)",
              [this](const std::string& flag, const std::string& text) {
                context_given_ = true;
                options_.context = TRY(parse_integer(flag, text, {2, INT32_MAX}));
                return ok_status();
              });
    add.integer("--adapters", "of bench prefill, decode and profile: requests have one of so many adapters in turn (0)",
                {1, kMaxAdapterSlots}, options_.adapters);
    add.value("--repeat", "N",
              "of all but serve: runs of each kind, of which the median counts (10; of graphs and vision 50)",
              [this](const std::string& flag, const std::string& text) {
                repeat_given_ = true;
                options_.repeat = TRY(parse_integer(flag, text, {1, 1'000'000}));
                return ok_status();
              });
    add.value("--compilers", "LIST", "of bench graphs: an engine each, like eager,fused (the engine's)",
              [this](const std::string& flag, const std::string& text) {
                options_.compilers = TRY(parse_names(flag, text));
                return ok_status();
              });
    add.value("--image-size", "LIST", "of bench vision: pixels, like 224x224,1280x960 (six, from small to large)",
              [this](const std::string& flag, const std::string& text) {
                options_.image_sizes = TRY(parse_image_sizes(flag, text));
                return ok_status();
              });
    add.sizes("--images", "of bench vision: so many are encoded together (1,4,16)", options_.images);
    add.text("--output", "FILE", "of bench profile: a trace for chrome://tracing or ui.perfetto.dev", options_.output);
    add.flag("--json", "the result as one JSON object", options_.json);
    serve_.add(add);
    add_engine_flags(add, options_.engine, common);
  }

  EngineOptions* engine() override { return what_.empty() || serve_.has_url() ? nullptr : &options_.engine; }

  Result<Command> finish() override {
    static constexpr std::array<std::string_view, 7> kKinds = {"prefill", "decode", "graphs", "startup",
                                                               "profile", "vision", "serve"};
    if (what_.empty())
      return invalid_argument(
          "bench needs what to measure: prefill and decode (forwards, eager and through graphs), graphs "
          "(every form of every size in turn), startup (load and capture), profile (a timeline of one forward), "
          "vision (a tower, eager and through graphs) and serve (a server under load), as in tessera bench decode "
          "--model-path DIR");
    const std::size_t kind = TRY(parse_choice("bench", what_, kKinds));
    const bool serve = kKinds[kind] == "serve";
    const auto misplaced = [this](std::string_view flag) {
      return invalid_argument(fmt::format("{} does not go with bench {}", flag, what_));
    };
    const bool profile = what_ == "profile";
    const bool graphs = what_ == "graphs";
    const bool both = profile || graphs;
    if (!options_.num_tokens.empty() && what_ != "prefill" && !both) return misplaced("--num-tokens");
    if (!options_.batch_sizes.empty() && what_ != "decode" && !both) return misplaced("--batch-size");
    if (context_given_ && what_ != "decode" && !both) return misplaced("--context");
    if (options_.adapters > 0 && what_ != "prefill" && what_ != "decode" && !profile) return misplaced("--adapters");
    if (!options_.compilers.empty() && !graphs) return misplaced("--compilers");
    if ((graphs || what_ == "vision") && !repeat_given_) options_.repeat = kComparedRepeat;
    const bool vision = what_ == "vision";
    if (!options_.image_sizes.empty() && !vision) return misplaced("--image-size");
    if (!options_.images.empty() && !vision) return misplaced("--images");
    if (!options_.output.empty() && !profile) return misplaced("--output");
    if (profile && options_.output.empty()) return invalid_argument("--output is missing: the file of the trace");
    if (profile && options_.num_tokens.empty() && options_.batch_sizes.empty())
      return invalid_argument("bench profile needs --num-tokens, --batch-size or both");
    if (profile && context_given_ && options_.batch_sizes.empty())
      return invalid_argument("--context goes with --batch-size");
    if (repeat_given_ && serve) return misplaced("--repeat");
    if (!serve && !serve_.given().empty()) return misplaced(serve_.given());
    if (serve) {
      BenchServeOptions options = TRY(serve_.finish(options_.engine, options_.json));
      return Command(std::move(options));
    }
    options_.kind = static_cast<BenchKind>(kind);
    return Command(options_);
  }

 private:
  BenchOptions options_;
  BenchServeFlags serve_;
  std::string what_;
  bool context_given_ = false;
  bool repeat_given_ = false;
};

}  // namespace

std::unique_ptr<CommandParser> make_bench_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<BenchParser>(add, common);
}

}  // namespace tessera::cli
