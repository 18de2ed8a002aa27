// Catches: measurements used for another model, device, version, type or compilation; measurements that are lost when
// the list of graph sizes changes; stored files that make a start fail; a write although nothing is new; and a start
// that does not give a library the algorithms that the library chose in an earlier start.
#include "tessera/engine/plan/profile_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "tessera/base/testing/captured_warnings.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/compile/compiler.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/testing/described_device.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/engine.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The state of a fake library. `chosen` has the algorithms that it chose. `given` has the algorithms that the engine
// passed to import_algorithms().
std::string library_versions = "1";
Json chosen = Json::array();
Json given;
std::string versions() { return library_versions; }
Json export_algorithms() { return chosen; }
Status import_algorithms(const Json& algorithms) {
  if (!algorithms.is_array()) return data_loss("no list");
  given = algorithms;
  return ok_status();
}
Json learnt;
Status learn_algorithms(const Json& algorithms) {
  learnt = algorithms;
  return ok_status();
}
int unmeasured = 0;
Result<bool> measure_algorithms(Device&) {
  if (unmeasured == 0) return false;
  --unmeasured;
  chosen.push_back("a faster one");
  return true;
}
const Backend kLibrary{.create_device = nullptr,
                       .kernels = nullptr,
                       .versions = versions,
                       .export_algorithms = export_algorithms,
                       .import_algorithms = import_algorithms,
                       .learn_algorithms = learn_algorithms,
                       .measure_algorithms = measure_algorithms};

CostTable costs_of(double ms) {
  CostTable costs;
  for (const std::int64_t size : {4, 64, 2048}) {
    costs.add(RunnerKind::kPrefill, size, ms);
    costs.add(RunnerKind::kEager, size, 2 * ms);
  }
  return costs;
}

class ProfileStoreTest : public ::testing::Test {
 public:
  void SetUp() override {
    library_versions = "1";
    chosen = Json::array();
    given = Json();
    options_.model_path = testing::data_path("goldens/llama");
    options_.cache_dir = folder_;
  }

  std::string warnings() { return warnings_.take(); }
  EnginePlan plan() const {
    testing::DescribedDevice device(device_);
    Result<EnginePlan> made = plan_engine(options_, device);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  ProfileStore store() const { return {options_, plan(), device_, kLibrary}; }
  ProfileKeys keys() const { return profile_keys(options_, plan(), device_, kLibrary); }
  // Returns the only stored file of this kind.
  fs::path file(const std::string& kind) const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().filename().string().starts_with(kind)) return entry.path();
    }
    return {};
  }

  test::CapturedWarnings warnings_;
  test::ScratchDir scratch_;
  std::string folder_ = scratch_.path();
  EngineOptions options_;
  DeviceProperties device_ = {.name = "test", .memory_bytes = std::int64_t{8} << 30, .threads = 2};
};

TEST_F(ProfileStoreTest, TheNextStartReusesCostsAndAlgorithms) {
  chosen.push_back("algorithm 7");
  {
    ProfileStore first = store();
    EXPECT_TRUE(first.load_costs().empty());
    first.restore_algorithms();
    EXPECT_EQ(given, Json());
    first.save(costs_of(1.5));
  }
  ProfileStore second = store();
  EXPECT_EQ(second.load_costs().to_json(), costs_of(1.5).to_json());
  second.restore_algorithms();
  EXPECT_EQ(given, chosen);
  EXPECT_EQ(warnings(), "");
}

TEST_F(ProfileStoreTest, OnlyNewMeasurementsAreWritten) {
  chosen.push_back("algorithm 7");
  ProfileStore some = store();
  some.save(CostTable());
  EXPECT_EQ(file("costs"), "");
  some.save(costs_of(1));
  for (const char* kind : {"costs", "linears"}) ASSERT_TRUE(fs::remove(file(kind)));
  some.save(costs_of(1));
  EXPECT_TRUE(file("costs").empty() && file("linears").empty());
  some.save(costs_of(2));
  EXPECT_TRUE(!file("costs").empty() && file("linears").empty());
  chosen.push_back("algorithm 8");
  some.save(costs_of(2));
  EXPECT_FALSE(file("linears").empty());
}

TEST_F(ProfileStoreTest, MeasuredAlgorithmsAreForLaterStartsOfOneNode) {
  testing::DescribedDevice device(device_);
  unmeasured = 2;
  ProfileStore first = store();
  EXPECT_TRUE(*first.measure_algorithms(device));
  first.save(CostTable());
  store().restore_algorithms();
  EXPECT_EQ(given, chosen);
  learnt = Json();
  store().save(CostTable());
  EXPECT_EQ(learnt, chosen) << "what another process kept is read before it is replaced";
  const auto leaves_it = [&](const char* why) {
    given = Json();
    ProfileStore some = store();
    EXPECT_FALSE(*some.measure_algorithms(device)) << why;
    some.restore_algorithms();
    EXPECT_EQ(unmeasured, 1) << why;
  };
  options_.tp_size = 2;
  options_.nnodes = 2;
  options_.dist_init_addr = "127.0.0.1:29500";
  leaves_it("the other node's cache may differ");
  EXPECT_EQ(given, Json());
  chosen = Json::array();
  chosen.push_back("a node's own");
  store().save(CostTable());
  options_.tp_size = options_.nnodes = 1;
  store().restore_algorithms();
  EXPECT_NE(given, chosen) << "a node kept its own in the place of what was measured";
  options_.graphs.measure_costs = false;
  leaves_it("nothing is to be measured");
  options_.graphs.measure_costs = true;
  options_.cache_dir = "";
  leaves_it("nothing would be kept");
  EXPECT_EQ(warnings(), "");
}

TEST_F(ProfileStoreTest, KeysDifferInWhatMatters) {
  const ProfileKeys base = keys();
  std::set<Hash128> costs = {base.costs};
  const auto differs = [&](const char* what, const std::function<void(ProfileStoreTest&)>& change) {
    const EngineOptions options = options_;
    const DeviceProperties device = device_;
    change(*this);
    EXPECT_TRUE(costs.insert(keys().costs).second) << what;
    options_ = options;
    device_ = device;
    library_versions = "1";
  };
  differs("model", [](auto& t) { t.options_.model_path = testing::data_path("goldens/qwen3"); });
  differs("dtype", [](auto& t) { t.options_.dtype = "bfloat16"; });
  differs("page size", [](auto& t) { t.options_.page_size = 32; });
  differs("passes", [](auto& t) { t.options_.graphs.disabled_passes = {std::string(pass_list()[0].name)}; });
  differs("mode", [](auto& t) { t.options_.graphs.mode = GraphMode::kFull; });
  differs("memory plan", [](auto& t) { t.options_.memory_plan = MemoryPlanKind::kIsolated; });
  differs("deterministic", [](auto& t) { t.options_.deterministic = true; });
  differs("debug", [](auto& t) { t.options_.graphs.debug = true; });
  differs("device", [](auto& t) { t.device_.name = "test, 4 threads"; });
  differs("older kernels", [](auto& t) { t.device_.compute_capability = 80; });
  differs("versions", [](auto&) { library_versions = "2"; });
  EXPECT_EQ(keys().costs, base.costs);

  options_.graphs.piecewise_tokens = {8, 32};
  options_.graphs.decode_batches = {1};
  options_.chunked_prefill_size = 64;
  options_.model_path = fs::relative(options_.model_path).string();
  EXPECT_EQ(keys().costs, base.costs) << "sizes are part of the costs, and a path is only a name";
  options_.model_path = testing::data_path("goldens/qwen3");
  EXPECT_EQ(keys().algorithms, base.algorithms);
  library_versions = "2";
  EXPECT_NE(keys().algorithms, base.algorithms);
}

TEST_F(ProfileStoreTest, MeasuresAndReadsNothingWhenSwitchedOff) {
  store().save(costs_of(1));
  options_.graphs.measure_costs = false;
  EXPECT_TRUE(store().load_costs().empty());
  options_.graphs.measure_costs = true;
  EXPECT_FALSE(store().load_costs().empty());
  options_.cache_dir = "";
  ProfileStore nowhere = store();
  nowhere.save(costs_of(1));
  nowhere.restore_algorithms();
  EXPECT_TRUE(nowhere.load_costs().empty());
  EXPECT_EQ(warnings(), "");
}

// Schedules are measured on this machine's device, stored on disk, and known to the next process.
TEST_F(ProfileStoreTest, SchedulesAreMeasuredAndKept) {
  const auto device = CpuDevice::create({.threads = 2}).value();
  ProfileStore some = store();
  EXPECT_FALSE(*some.measure_schedules(*device)) << "nothing was bound";
  EngineOptions engine_options = options_;
  engine_options.load_format = LoadFormat::kDummy;
  engine_options.max_total_tokens = 256;
  engine_options.context_length = 64;
  engine_options.graphs.piecewise_tokens = {8, 32};
  engine_options.graphs.decode_batches = {1};
  engine_options.graphs.compiler = kFusedCompiler;
  const auto started = Engine::create(engine_options);
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  while (*(*started)->idle_work()) {
  }
  const Result<EnginePlan> planned = plan_engine(engine_options, *device);
  ASSERT_TRUE(planned.ok());
  ProfileStore later(engine_options, *planned, (*started)->runner().device().properties());
  const std::map<RowProblem, MeasuredSchedules> known = later.load_schedules();
  EXPECT_FALSE(known.empty()) << "measured by this engine, or by an earlier one of this process";
  EXPECT_GE(std::ssize(known), (*started)->measured_schedules());
  for (const auto& [problem, measured] : known) {
    EXPECT_GE(measured.us.size(), 2U) << measured.name;
    EXPECT_EQ(row_schedules().chosen(problem), measured.chosen);
  }
  const auto again = Engine::create(engine_options);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  while (*(*again)->idle_work()) {
  }
  EXPECT_EQ((*again)->measured_schedules(), 0) << "all were known";
}

// Reads complete entries with content that this program never writes.
TEST_F(ProfileStoreTest, ContentThatIsNotOursIsIgnored) {
  Json strange = Json::object();
  strange.set("prefill", "fast");
  ProfileCache cache({.root = folder_});
  cache.save("costs", keys().costs, strange);
  cache.save("linears", keys().algorithms, strange);
  ProfileStore some = store();
  EXPECT_TRUE(some.load_costs().empty());
  EXPECT_THAT(warnings(), HasSubstr("measurements stored by an earlier start are not used: measured costs"));
  some.restore_algorithms();
  EXPECT_THAT(warnings(), HasSubstr("no list"));
  EXPECT_EQ(given, Json());
  some.save(costs_of(3));
  EXPECT_FALSE(store().load_costs().empty());
}

TEST_F(ProfileStoreTest, AnAutomaticLadderUsesTheKnownCosts) {
  CostTable flat;  // a larger graph costs no more, so the ladder needs only one size
  for (const std::int64_t size : {4, 2048}) flat.add(RunnerKind::kPrefill, size, 1.0);
  ProfileStore(options_, plan(), device_).save(flat);
  options_.graphs.schedule = PrefillSchedule::kAuto;
  const std::vector<std::int64_t> cold = plan().runner.prefill_sizes;
  testing::DescribedDevice device(device_);
  const std::vector<std::int64_t> warm = plan_engine_with_profile(options_, device)->runner.prefill_sizes;
  ASSERT_TRUE(options_.known_costs);
  fs::remove_all(folder_);
  EXPECT_EQ(ProfileStore(options_, plan(), device_).load_costs().to_json(), flat.to_json()) << "without another look";
  EXPECT_LT(warm.size(), cold.size());

  options_.known_costs.reset();
  EXPECT_EQ(plan_engine_with_profile(options_, device)->runner.prefill_sizes, cold);
  EXPECT_TRUE(options_.known_costs && options_.known_costs->empty()) << "looked for, and not found";
  options_.known_costs.reset();
  options_.graphs.schedule = PrefillSchedule::kDefault;
  EXPECT_EQ(plan_engine_with_profile(options_, device)->runner.prefill_sizes, prefill_ladder(2048));
  EXPECT_FALSE(options_.known_costs);
}

}  // namespace
}  // namespace tessera
