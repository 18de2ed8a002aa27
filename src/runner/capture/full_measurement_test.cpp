// A prefill size can run as one full graph, which includes attention, or as graphs of pieces with attention between
// them. Catches: a full graph that is used for a batch that it does not support; a full graph that is used before
// measurements show that it is faster than the pieces and gives equal results; a full graph that is kept although the
// pieces are faster or give other results; and a failed full graph whose size then also loses the graphs of its pieces.
#include "tessera/runner/capture/full_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tessera/ops/contract/forward_states.h"
#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/runner_test_util.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ids;
using ::testing::IsEmpty;
using testing::LastLayer;
using testing::make_bench;
using testing::make_captured;
using ::testing::Not;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

// Cache groups for page_batch(). The paged group gives each row of a request its own slot. The state group gives all
// rows slot 0.
const std::vector<ir::CacheGroup> kGroups = {{.name = "full"}, {.name = "state", .kind = ir::CacheGroup::Kind::kState}};

// In kPrompts every request has several rows. kMixed has a prompt and a request with a single row.
const std::vector<TestRequest> kPrompts = {{ids(7)}, {ids(4, 2)}, {ids(3, 3)}};
const std::vector<TestRequest> kMixed = {{ids(7)}, {ids(5, 2), 4}};

RunnerOptions choosing() {
  RunnerOptions options = small_options();
  options.choose_full = true;
  return options;
}

// Returns replay costs that are low enough for every size to be measured. A full graph saves at most a fixed time per
// cut. If this saving is too small a fraction of the replay's time, the size is skipped (FullMeasurement::may_win).
CostTable small_costs() {
  CostTable costs;
  for (const std::int64_t size : {4, 16, 40}) costs.add(RunnerKind::kPrefill, size, 1e-3);
  return costs;
}

CostTable full_at(std::int64_t size, FullCost cost = {.ratio = 0.5, .equal = true}) {
  CostTable costs = small_costs();
  costs.add_full(size, cost);
  return costs;
}

RunnerBench captured_with(CostTable costs, RunnerOptions options = choosing(), LastLayer last = LastLayer::kOfAllRows) {
  RunnerBench bench = make_bench("llama", std::move(options), ir::DType::kFloat32, last);
  bench.runner->set_costs(std::move(costs));
  const Status status = bench.runner->capture();
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bench;
}

void measure_until_done(ModelRunner& runner) {
  for (int n = 0; n < 500; ++n) {
    const Result<bool> left = runner.idle_work();
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    if (!*left) return;
  }
  ADD_FAILURE() << "idle work does not end";
}

Decision decision_of(RunnerBench& bench, const std::vector<TestRequest>& requests) {
  Decision decision;
  bench.logits(requests, Rows::kAll, false, &decision);
  return decision;
}

TEST(MedianBound, IsTheThirdLargest) {
  std::vector<double> ratios(kFullPairs);
  std::iota(ratios.begin(), ratios.end(), 1.0);
  std::reverse(ratios.begin() + 3, ratios.end());
  EXPECT_EQ(median_bound(ratios), 13);
  EXPECT_EQ(median_bound(std::vector<double>(kFullPairs, 0.5)), 0.5);
}

TEST(PageBatch, DividesTokensIntoEqualRequestsOfOnePage) {
  RunnerOptions options = small_options();
  options.max_requests = 6;
  for (std::int64_t size = 2; size <= 48; ++size) {
    const std::optional<ForwardBatch> batch = page_batch(size, options, kGroups);
    ASSERT_TRUE(batch) << size;
    EXPECT_EQ(batch->num_tokens(), size);
    EXPECT_TRUE(shape_of(*batch).several_rows_each);
    std::size_t row = 0;
    for (std::size_t b = 0; b < batch->query_lens.size(); ++b) {
      EXPECT_LE(batch->query_lens[b], options.page_size);
      EXPECT_EQ(batch->kv_lens[b], batch->query_lens[b]);
      for (std::int32_t i = 0; i < batch->query_lens[b]; ++i, ++row) {
        EXPECT_EQ(batch->positions[row], i);
        EXPECT_EQ(batch->input_ids[row], batch->input_ids[static_cast<std::size_t>(i)]) << "as every other request";
        EXPECT_EQ(batch->groups[0].slots[row], SlotId(i)) << "on the reserved page";
        EXPECT_EQ(batch->groups[1].slots[row], SlotId(0)) << "the others are states of requests";
      }
    }
  }
  EXPECT_FALSE(page_batch(1, options, kGroups)) << "a single row";
  EXPECT_FALSE(page_batch(49, options, kGroups)) << "more than six pages of eight";
  options.page_size = 1;
  EXPECT_FALSE(page_batch(4, options, kGroups)) << "requests of a single row";
}

TEST(FullGraphs, AStoredChoiceIsCapturedAndReplayedForPrompts) {
  RunnerBench pieces = make_captured("llama", small_options());
  RunnerBench bench = captured_with(full_at(16));
  EXPECT_THAT(bench.runner->dispatch_table().full_sizes, ElementsAre(16));
  for (const std::vector<TestRequest>& requests : {kPrompts, kMixed, {{ids(16)}}, {{ids(3)}}})
    EXPECT_EQ(bench.logits(requests), pieces.logits(requests)) << "to the bit";
  const Decision prompts = decision_of(bench, kPrompts);
  EXPECT_EQ(prompts.form, GraphForm::kFull);
  EXPECT_EQ(prompts.reason, Reason::kFullCostsLess);
  EXPECT_EQ(prompts.size, 16);
  EXPECT_EQ(prompts.padding, 2);
  EXPECT_EQ(decision_of(bench, kMixed).form, GraphForm::kPieces) << "a request has a single row";
  EXPECT_EQ(decision_of(bench, {{ids(3)}}).form, GraphForm::kPieces) << "another size";
  EXPECT_EQ(bench.runner->counters().forwards(Reason::kFullCostsLess), 3);
}

TEST(FullGraphs, AreVerifiedBesideThePieces) {
  RunnerBench bench = captured_with(full_at(16));
  const Result<VerifyReport> report = verify(*bench.runner, /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
  std::vector<std::string> rows;
  for (const VerifyRow& row : report->rows)
    rows.push_back(row.runner + " " + std::to_string(row.real) + "/" + std::to_string(row.size));
  EXPECT_THAT(rows, ::testing::IsSupersetOf({"prefill 16/16", "prefill, full 16/16", "prefill, full 15/16"}));
}

TEST(FullGraphs, AreNotMadeUnlessChosen) {
  const auto full_sizes = [](CostTable costs, const std::function<void(RunnerOptions&)>& change) {
    RunnerOptions options = choosing();
    change(options);
    return captured_with(std::move(costs), options).runner->prefill().report().full;
  };
  const auto nothing = [](RunnerOptions&) {};
  EXPECT_THAT(full_sizes(full_at(16), nothing), ElementsAre(16));
  EXPECT_THAT(full_sizes(full_at(16, {.ratio = 0.5, .equal = false}), nothing), IsEmpty());
  EXPECT_THAT(full_sizes(full_at(16, {.ratio = 1, .equal = true}), nothing), IsEmpty());
  EXPECT_THAT(full_sizes(full_at(8), nothing), IsEmpty()) << "no size of the ladder";
  EXPECT_THAT(full_sizes(full_at(16), [](RunnerOptions& o) { o.choose_full = false; }), IsEmpty());
  EXPECT_THAT(full_sizes(full_at(16), [](RunnerOptions& o) { o.measure_costs = false; }), IsEmpty());
  EXPECT_THAT(full_sizes(full_at(16), [](RunnerOptions& o) { o.split_ops.clear(); }), IsEmpty()) << "it is one already";
  EXPECT_THAT(full_sizes(full_at(16), [](RunnerOptions& o) { o.capture = CaptureMode::kLazy; }), IsEmpty());
}

TEST(FullGraphs, ALazySizeIsCapturedInBothForms) {
  RunnerOptions options = choosing();
  options.capture = CaptureMode::kLazy;
  RunnerBench bench = captured_with(full_at(16), options);
  EXPECT_THAT(bench.runner->prefill().report().captured, IsEmpty());
  EXPECT_EQ(decision_of(bench, kPrompts).form, GraphForm::kFull);
  EXPECT_EQ(decision_of(bench, kMixed).form, GraphForm::kPieces);
}

TEST(FullGraphs, AFailedCaptureLeavesThePieces) {
  RunnerBench bench = make_bench("llama", choosing());
  bench.runner->set_costs(full_at(16));
  bench.device->set_plan({.end_recording_fails_at = 13});  // recordings 1 … 12 are the 4 pieces of each of the 3 sizes
  ASSERT_TRUE(bench.runner->capture().ok());
  EXPECT_EQ(bench.device->counts().faults, 1);
  bench.device->set_plan({});
  EXPECT_THAT(bench.runner->dispatch_table().full_sizes, IsEmpty());
  EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, ElementsAre(4, 16, 40));
  EXPECT_EQ(decision_of(bench, kPrompts).form, GraphForm::kPieces);
}

TEST(FullGraphs, ThreeFailedReplaysLeaveThePieces) {
  RunnerBench bench = captured_with(full_at(16));
  const std::vector<float> want = bench.logits(kPrompts);
  for (int n = 0; n < 3; ++n) {
    bench.device->set_plan({.replay_fails_at = 1});
    EXPECT_EQ(decision_of(bench, kPrompts).reason, Reason::kReplayFailed);
  }
  bench.device->set_plan({});
  EXPECT_THAT(bench.runner->dispatch_table().full_sizes, IsEmpty());
  Decision decision;
  EXPECT_EQ(bench.logits(kPrompts, Rows::kAll, false, &decision), want);
  EXPECT_EQ(decision.form, GraphForm::kPieces);
  EXPECT_EQ(decision.reason, Reason::kPaddedToSize);
}

TEST(FullGraphs, IdleMomentsMeasureThemAndKeepTheWinners) {
  RunnerBench bench = captured_with(small_costs());
  EXPECT_THAT(bench.runner->prefill().report().full, IsEmpty()) << "a first start is piecewise";
  bench.logits({{ids(30)}}, Rows::kLast);  // leaves a prefix in the KV cache, which the measurement must not change
  const std::vector<TestRequest> next = {{ids(31), 30}};
  const std::vector<float> want = bench.logits(next);
  measure_until_done(*bench.runner);
  const CostTable& costs = bench.runner->costs();
  ASSERT_TRUE(costs.full(4) && costs.full(16));
  EXPECT_TRUE(costs.full(4)->equal && costs.full(16)->equal);
  EXPECT_GT(costs.full(4)->ratio, 0);
  std::vector<std::int64_t> winners;
  for (const std::int64_t size : {4, 16, 40})
    if (costs.full_wins(size)) winners.push_back(size);
  EXPECT_EQ(bench.runner->prefill().report().full, winners);
  EXPECT_EQ(bench.runner->dispatch_table().full_sizes, winners);
  EXPECT_EQ(bench.logits(next), want) << "measuring has written to a request's pages";
  EXPECT_FALSE(*bench.runner->idle_work()) << "what was measured is not measured again";
}

TEST(FullGraphs, MeasuresNoSizeTwice) {
  CostTable costs = full_at(4, {.ratio = 1.25, .equal = true});
  costs.add_full(16, {.ratio = 1.5, .equal = true});
  RunnerBench bench = captured_with(costs);
  measure_until_done(*bench.runner);
  EXPECT_EQ(bench.runner->costs().full(4)->ratio, 1.25);
  EXPECT_EQ(bench.runner->costs().full(16)->ratio, 1.5);
  EXPECT_FALSE(bench.runner->costs().full(40)) << "two sizes before it have won nothing";
}

TEST(FullGraphs, SlowSizesAreNotMeasured) {
  RunnerBench bench = make_captured("llama", choosing());
  CostTable slow;
  for (const std::int64_t size : {4, 16, 40}) slow.add(RunnerKind::kPrefill, size, 1e9);
  RunnerParts& parts = bench.runner->parts();
  Dispatcher dispatcher(parts, bench.runner->captures());
  dispatcher.enable();
  dispatcher.costs() = slow;
  FullMeasurement measurement(parts, bench.runner->step().launcher(), bench.runner->captures(), dispatcher);
  EXPECT_FALSE(*measurement.measure_next());
  dispatcher.costs() = small_costs();
  EXPECT_TRUE(*measurement.measure_next());
}

// Returns the CPU's kernels with a changed attention: inside a full graph, the last attention of a forward computes
// other values. `layers` is the number of attention operators that a forward binds, one for each layer.
KernelTable other_attention_within_full_graphs(int layers) {
  static int number;
  static int of;
  number = 0;
  of = layers;
  class Other final : public BoundOp {
   public:
    Other(std::unique_ptr<BoundOp> real, bool last, const BindArgs& args)
        : real_(std::move(real)), last_(last), out_(args.operands[3]), context_(args.context) {}
    Status enqueue(Stream& stream) const override {
      if (!last_ || !in_state(context_, ForwardState::kFull)) return real_->enqueue(stream);
      return stream.fill(out_.data, 0, static_cast<std::size_t>(out_.bytes()));
    }

   private:
    std::unique_ptr<BoundOp> real_;
    bool last_;
    TensorView out_;
    const ForwardContext& context_;
  };
  KernelDef attention = **cpu_kernels().get("attention");
  attention.bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
    const bool last = ++number % of == 0;
    return std::make_unique<Other>(TRY((*cpu_kernels().get("attention"))->bind(args)), last, args);
  };
  return cpu_kernels().with(attention);
}

TEST(FullGraphs, AFullGraphWithOtherBitsIsNeverTaken) {
  for (const LastLayer rows : {LastLayer::kOfAllRows, LastLayer::kOfWantedRows}) {
    const KernelTable kernels = other_attention_within_full_graphs(/*layers=*/3);
    RunnerOptions options = choosing();
    options.kernels = &kernels;
    RunnerBench bench = captured_with(small_costs(), options, rows);
    measure_until_done(*bench.runner);
    ASSERT_TRUE(bench.runner->costs().full(4));
    EXPECT_FALSE(bench.runner->costs().full(16)->equal);
    EXPECT_THAT(bench.runner->dispatch_table().full_sizes, Not(Contains(16)));
    EXPECT_FALSE(bench.runner->prefill().has_full(16));
  }
}

TEST(FullGraphs, AnUnmeasurableSizeStaysInPieces) {
  RunnerBench bench = captured_with(small_costs());
  // First come the measurements of 3 replayed prefill sizes, 2 eager samples and 3 decode sizes.
  for (int n = 0; n < 3 + 2 + 3; ++n) ASSERT_TRUE(*bench.runner->idle_work());
  bench.device->set_plan({.replay_fails_at = 1});
  measure_until_done(*bench.runner);
  EXPECT_EQ(bench.device->counts().faults, 1);
  bench.device->set_plan({});
  ASSERT_TRUE(bench.runner->costs().full(4));
  EXPECT_FALSE(bench.runner->costs().full(4)->equal);
  EXPECT_FALSE(bench.runner->prefill().has_full(4));
  EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, ElementsAre(4, 16, 40));
}

}  // namespace
}  // namespace tessera
