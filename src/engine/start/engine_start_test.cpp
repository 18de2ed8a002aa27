// Catches: phases of a start that are out of order, leave gaps between them, or begin before the process did; a first
// token whose time is on another clock; a device's libraries that are not started, or are still starting when requests
// arrive; and a library's choices of algorithms that are lost when the process is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/compile/compiler.h"
#include "tessera/engine/engine_test_util.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = Timeline::Clock;

// Returns the names of the phases, except `libraries`, which the CPU does not have.
std::vector<std::string> names_of(const Timeline& start) {
  std::vector<std::string> names;
  for (const Timeline::Phase& phase : start.phases())
    if (phase.name != "libraries") names.push_back(phase.name);
  std::sort(names.begin(), names.end());
  return names;
}

// Expects hardly any time outside the phases. This time is usually below a millisecond, but the bound allows for pauses
// on a busy machine.
void expect_covers(const Timeline& start, double wall_s) {
  EXPECT_LE(wall_s - start.end_s(), 0.05 * wall_s + 0.02);
  EXPECT_LE(start.uncovered_s(), 0.05 * wall_s + 0.02) << start.line();
}

TEST(EngineStart, PhasesFollowEachOtherAndCoverTheStart) {
  const Clock::time_point began = Clock::now();
  const std::unique_ptr<Engine> engine = test::make_engine(test::demo_options());
  const double wall_s = std::chrono::duration<double>(Clock::now() - began).count();
  ASSERT_NE(engine, nullptr);
  const Timeline& start = engine->start();
  std::vector<std::string> all = {"device", "config",       "plan",    "tokenizer", "open weights",
                                  "memory", "load weights", "compile", "capture",   "warm up"};
  std::sort(all.begin(), all.end());
  EXPECT_THAT(names_of(start), ElementsAreArray(all));

  std::map<std::string, Timeline::Phase> phase;
  for (const Timeline::Phase& each : start.phases()) {
    phase[each.name] = each;
    EXPECT_GE(each.begin_s, 0) << each.name;
    EXPECT_LE(each.begin_s, each.end_s) << each.name;
    EXPECT_LE(each.end_s, wall_s) << each.name;
  }
  // Each phase of `order` begins after the one before it has ended. The tokenizer is read on another thread during the
  // phases before "open weights", and the weights load on another thread during the phases after it.
  const std::vector<std::string> order = {"device", "config", "plan", "open weights", "memory", "compile", "capture"};
  for (std::size_t i = 1; i < order.size(); ++i)
    EXPECT_LE(phase[order[i - 1]].end_s, phase[order[i]].begin_s) << order[i - 1] << ", " << order[i];
  EXPECT_LE(phase["tokenizer"].end_s, phase["open weights"].begin_s);
  EXPECT_LE(phase["open weights"].end_s, phase["load weights"].begin_s);
  EXPECT_GE(phase["warm up"].begin_s, phase["capture"].begin_s);
  EXPECT_LE(phase["warm up"].end_s, phase["capture"].end_s);
  expect_covers(start, wall_s);
}

TEST(EngineStart, SaysThatItHasNoTokenizer) {
  EXPECT_THAT(test::make_engine()->notes(), Contains(HasSubstr("has neither tokenizer.json nor tokenizer.model")));
  EXPECT_THAT(test::make_engine(test::demo_options())->notes(), Not(Contains(HasSubstr("tokenizer.json"))));
}

TEST(EngineStart, NamesTheFileOfAnInvalidEndToken) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "end_token_out_of_range";
  fs::remove_all(folder);
  fs::copy(testing::source_path("models/demo"), folder, fs::copy_options::recursive);
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": [1, 999999]})";
  EngineOptions options = test::demo_options();
  options.model_path = folder.string();
  const Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(engine.status().message(), HasSubstr("generation_config.json: \"eos_token_id\" has 999999"));

  fs::remove(folder / "tokenizer.json");
  const Status without_tokenizer = Engine::create(options).status();
  EXPECT_EQ(without_tokenizer.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(without_tokenizer.message(), HasSubstr("generation_config.json: \"eos_token_id\" has 999999"));
  fs::remove_all(folder);
}

TEST(EngineStart, HasStartedTheDevicesLibraries) {
  static std::atomic<int> started = 0;
  const auto registry = std::make_shared<Registry>(built_in_registry());
  static Backend backend;
  backend = **registry->devices.backend("cpu");
  backend.start_libraries = [](Device&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ++started;
  };
  registry->devices = DeviceRegistry();
  ASSERT_TRUE(registry->devices.add({.name = "cpu", .load = [] { return Result<const Backend*>(&backend); }}).ok());
  EngineOptions options = test::small_options();
  options.registry = registry;
  options.device = "cpu";
  const Clock::time_point began = Clock::now();
  const std::unique_ptr<Engine> engine = test::make_engine(options);
  const double wall_s = std::chrono::duration<double>(Clock::now() - began).count();
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(started, 1);
  // Starting the libraries takes longer than all other phases, so the engine waits for it.
  EXPECT_GE(engine->start().seconds_of("libraries"), 0.2);
  expect_covers(engine->start(), wall_s);
}

// An engine that is busy until its process is killed never saves the libraries' choices later, so the start itself must
// save them.
TEST(EngineStart, SavesWhatItsLibrariesChose) {
  const test::ScratchDir cache;
  const auto registry = std::make_shared<Registry>(built_in_registry());
  static Backend backend;
  backend = **registry->devices.backend("cpu");
  backend.export_algorithms = [] { return Json(Json::Array{Json("an algorithm")}); };
  registry->devices = DeviceRegistry();
  ASSERT_TRUE(registry->devices.add({.name = "cpu", .load = [] { return Result<const Backend*>(&backend); }}).ok());
  EngineOptions options = test::small_options();
  options.registry = registry;
  options.device = "cpu";
  options.cache_dir = cache.path();
  const std::unique_ptr<Engine> engine = test::make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::vector<std::string> kept;
  for (const auto& file : std::filesystem::recursive_directory_iterator(cache.path())) {
    if (!file.path().filename().string().starts_with("linears-")) continue;
    std::ifstream text(file.path());
    kept.emplace_back(std::istreambuf_iterator<char>(text), std::istreambuf_iterator<char>());
  }
  EXPECT_THAT(kept, ::testing::ElementsAre(HasSubstr("an algorithm")));
}

TEST(EngineStart, ContinuesTheProgramsTimeline) {
  EngineOptions options = test::small_options();
  const Clock::time_point origin = Clock::now() - std::chrono::milliseconds(500);
  options.start.emplace(origin);
  options.start->record("process", origin, origin + std::chrono::milliseconds(400));
  const std::unique_ptr<Engine> engine = test::make_engine(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->start().phases()[0].name, "process");
  EXPECT_GE(engine->start().end_s(), 0.5);
  EXPECT_GE(engine->start().uncovered_s(), 0.09) << "between the process and the device";
}

TEST(EngineStart, FirstTokenIsOnTheSameClock) {
  const std::unique_ptr<Engine> engine = test::make_engine();
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->first_token(), std::nullopt);
  const double ready_s = engine->start().end_s();
  test::run_one(*engine, test::request(8, 3));
  ASSERT_TRUE(engine->first_token());
  const Timeline::Phase first = *engine->first_token();
  EXPECT_GE(first.begin_s, ready_s);
  EXPECT_GT(first.end_s, first.begin_s);
  EXPECT_LE(first.end_s, engine->start().seconds_at(Clock::now()));
  test::run_one(*engine, test::request(8, 3, 2));
  EXPECT_EQ(engine->first_token()->end_s, first.end_s) << "the first since the start";
}

class KeptProfile : public ::testing::Test {
 protected:
  KeptProfile() {
    options_.graphs.compiler = std::string(kFusedCompiler);
    options_.device = "cpu";
    options_.cache_dir = folder_.path();
  }
  RunnerInventory prefill() const { return test::make_engine(options_)->stats().graphs->prefill; }
  bool has_costs() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path()))
      if (entry.path().filename().string().starts_with("costs-")) return true;
    return false;
  }

  test::ScratchDir folder_;
  EngineOptions options_ = test::small_options();
};

// A start first compiles its programs to predict the memory that it needs. When the start later uses these programs,
// they must count as compiled and not as cached.
TEST_F(KeptProfile, AStartCountsCompiledAndCachedPrograms) {
  const RunnerInventory first = prefill();
  EXPECT_GT(first.general_compiles, 1);
  EXPECT_LT(first.general_compiles, first.pieces) << "layers share programs";
  EXPECT_EQ(first.cached_programs, 0);
  const RunnerInventory second = prefill();
  EXPECT_EQ(second.general_compiles, first.general_compiles - second.cached_programs);
  EXPECT_GT(second.cached_programs, 1);
  options_.cache_dir.clear();
  const RunnerInventory without = prefill();
  EXPECT_EQ(without.general_compiles, first.general_compiles);
  EXPECT_EQ(without.cached_programs, 0);
}

TEST_F(KeptProfile, MeasurementsAreWrittenWhileTheEngineRuns) {
  const std::unique_ptr<Engine> engine = test::make_engine(options_);
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(has_costs());
  EXPECT_TRUE(engine->idle_work().value()) << "more is left";
  EXPECT_TRUE(has_costs());
}

}  // namespace
}  // namespace tessera
