// Tests debug mode. Catches: a changed result or an error in a correct forward; a moved address or changed page table
// that is not noticed; a kernel or memory plan that reads values of the previous replay; a NaN that is not found or for
// which the wrong operator is named; and a checked forward that breaks the next one.
#include "tessera/runner/verify/debug_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ids;
using testing::make_batch;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

RunnerOptions debug_options() {
  RunnerOptions options = small_options();
  options.debug = true;
  return options;
}

// Both batches replay graphs. kPrompt replays the graph of 16 tokens, and kNext replays the graph of 4 requests. kNext
// reads the caches that kPrompt filled.
const std::vector<TestRequest> kPrompt = {{ids(6, 2)}, {ids(3, 3)}, {ids(2, 4)}};
const std::vector<TestRequest> kNext = {{ids(7, 2), 6}, {ids(4, 3), 3}, {ids(3, 4), 2}};

Status forward_error(RunnerBench& bench, const std::vector<TestRequest>& requests, Rows rows = Rows::kLast) {
  std::vector<float> logits;
  return bench.forward(make_batch(requests, rows), logits).status();
}

float* weight(RunnerBench& bench, const std::string& name) {
  return reinterpret_cast<float*>(bench.runner->parts().externals().find(name, {}).raw());
}

class DebugModeOf : public ::testing::TestWithParam<std::string> {};

TEST_P(DebugModeOf, ChangesNoBitAndRefusesNoSoundForward) {
  RunnerOptions options = debug_options();
  RunnerBench checked = make_captured(GetParam(), options);
  options.debug = false;
  RunnerBench plain = make_captured(GetParam(), options);
  const std::size_t groups = GetParam() == "qwen2-swa" ? 2 : 1;
  const auto logits = [&](RunnerBench& bench, const std::vector<TestRequest>& requests, bool eager) {
    std::vector<float> made;
    const Result<ForwardOutputs> outputs = bench.forward(make_batch(requests, Rows::kAll, groups), made, eager);
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
    return made;
  };
  for (const bool eager : {false, true}) {
    for (const auto& requests : {kPrompt, kNext, std::vector<TestRequest>{{ids(30, 5)}, {ids(7, 6)}}})
      EXPECT_EQ(logits(checked, requests, eager), logits(plain, requests, eager)) << eager;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, DebugModeOf,
                         ::testing::Values("llama", "llama3-rope-tied", "mistral-swa", "qwen2", "qwen2-swa", "qwen3"));

// Without debug mode, the attention of the last layer skips the unwanted rows of a prompt. Debug mode fills the arena
// with NaN before the forward and checks all rows afterwards. Skipped rows would keep their NaNs, so in debug mode the
// attention must compute all rows.
TEST(DebugMode, ComputesUnwantedRowsToo) {
  const auto logits_of = [](bool debug, MemoryPlanKind plan) {
    RunnerOptions options = debug_options();
    options.debug = debug;
    options.memory_plan = plan;
    options.max_tokens = 320;
    RunnerBench bench = make_captured("llama", options, ir::DType::kFloat32, testing::LastLayer::kOfWantedRows);
    std::vector<float> made;
    for (const bool eager : {false, true}) {
      const Result<ForwardOutputs> outputs =
          bench.forward(make_batch({{ids(60, 5)}, {ids(57, 2)}, {ids(3, 4)}}, Rows::kLast), made, eager);
      EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
    }
    return made;
  };
  const std::vector<float> plain = logits_of(false, MemoryPlanKind::kPlanned);
  EXPECT_EQ(logits_of(true, MemoryPlanKind::kPlanned), plain);
  EXPECT_EQ(logits_of(true, MemoryPlanKind::kIsolated), plain);
}

TEST(DebugMode, FindsAPageTableThatChangedUnderItsNumber) {
  RunnerBench bench = make_captured("llama", debug_options());
  std::vector<float> logits;
  ForwardBatch batch = make_batch(kPrompt, Rows::kLast);
  ASSERT_TRUE(bench.forward(batch, logits).ok());
  const std::vector<PageId> other{PageId(20)};
  batch.groups[0].page_tables[1].pages = other;
  EXPECT_THAT(bench.forward(batch, logits).status().message(), HasSubstr("request 1: entry 0 was page"));
}

TEST(DebugMode, EditsLogprobsAndHiddenStatesPassItsChecks) {
  const auto outputs_of = [](const RunnerOptions& options) {
    RunnerBench bench = make_captured("llama", options);
    std::vector<float> left;
    for (const std::vector<TestRequest>& requests : {kPrompt, kNext, kPrompt}) {
      const ForwardBatch batch = make_batch(requests, Rows::kAll);
      const std::vector<SampleRow> sampling(requests.size());
      LogitEdits edits{.starts = {0}, .ids = {}, .penalties = {}, .offsets = {}, .masked_rows = {}, .masks = {}};
      for (std::size_t r = 0; r < sampling.size(); ++r) {
        edits.ids.emplace_back(static_cast<std::int32_t>(r));
        edits.penalties.push_back(1.5F);
        edits.offsets.push_back(2.0F);
        edits.starts.push_back(static_cast<std::int32_t>(r + 1));
      }
      const std::vector<TokenId> targets(batch.wanted_rows.size(), TokenId(3));
      std::vector<float> hidden(static_cast<std::size_t>(batch.num_tokens() * bench.runner->hidden_size()));
      const Result<ForwardOutputs> out = bench.runner->forward({.batch = batch,
                                                                .sampling = sampling,
                                                                .edits = &edits,
                                                                .logprob_targets = targets,
                                                                .top_logprobs = 2,
                                                                .hidden_states = hidden});
      EXPECT_TRUE(out.ok()) << out.status().to_string();
      if (!out.ok()) continue;
      left.insert(left.end(), hidden.begin(), hidden.end());
      left.insert(left.end(), out->step.logprobs.begin(), out->step.logprobs.end());
      for (const TokenId id : out->step.sampled) left.push_back(static_cast<float>(id.value()));
    }
    return left;
  };
  RunnerOptions plain = debug_options();
  plain.debug = false;
  EXPECT_EQ(outputs_of(debug_options()), outputs_of(plain));
  RunnerOptions isolated = debug_options();
  isolated.memory_plan = MemoryPlanKind::kIsolated;
  EXPECT_EQ(outputs_of(isolated), outputs_of(plain));
}

TEST(DebugMode, AMovedAddressFailsItsForwardAndNoOther) {
  RunnerBench bench = make_captured("llama", debug_options());
  ASSERT_TRUE(forward_error(bench, kPrompt).ok());
  const struct {
    std::string name;
    std::string what;
    std::string piece;
  } cases[] = {{"model.layers.1.mlp.down_proj.weight", "weight %", "piece 4"},
               {"last_ids", "input %", "piece 0"},
               {"k_cache.2", "state %", "piece 4"}};
  ExternalValues& externals = bench.runner->parts().externals();
  for (const auto& c : cases) {
    const DeviceAddress address = externals.find(c.name, {});
    externals.add(c.name, address + 256);
    const Status status = forward_error(bench, kPrompt);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(c.what + c.name), HasSubstr(c.piece), HasSubstr("T=16")));
    externals.add(c.name, address);
    EXPECT_TRUE(forward_error(bench, kPrompt).ok());
  }
  // The faults did not make the runner drop a graph.
  EXPECT_EQ(bench.runner->dispatch_table().prefill_sizes, small_options().prefill_sizes);
}

TEST(DebugMode, AWeightWithANaNIsNamed) {
  RunnerBench bench = make_captured("llama", debug_options());
  const std::string name = "model.layers.1.post_attention_layernorm.weight";
  float* const values = weight(bench, name);
  const float was = values[7];
  values[7] = NAN;
  const Status prefill = forward_error(bench, kPrompt);
  EXPECT_EQ(prefill.code(), StatusCode::kInternal);
  EXPECT_THAT(prefill.message(), AllOf(HasSubstr("prefill at T=16"), HasSubstr("%hidden row 0 column 0 is NaN"),
                                       HasSubstr("operator add_rms_norm in piece 4"),
                                       HasSubstr("its operand, weight %" + name + ", has one at element 7")));
  EXPECT_THAT(forward_error(bench, kNext).message(),
              AllOf(HasSubstr("decode at"), HasSubstr("operator add_rms_norm in piece 0"), HasSubstr(name)));
  values[7] = was;
  EXPECT_TRUE(forward_error(bench, kPrompt).ok());
  EXPECT_TRUE(forward_error(bench, kNext).ok());

  weight(bench, "lm_head.weight")[5] = NAN;
  EXPECT_THAT(forward_error(bench, kPrompt).message(),
              AllOf(HasSubstr("head at"), HasSubstr("%logits row 0 column 0 is NaN"), HasSubstr("operator linear"),
                    HasSubstr("weight %lm_head.weight, has one at row 0 column 5")));
}

// Only one embedding row has memory, so the search for the NaN must not read other rows.
TEST(DebugMode, TracesNanEmbeddingsToTheirOperator) {
  RunnerBench bench = make_captured("llama", debug_options());
  ASSERT_TRUE(bench.runner->reserve_embeddings(1).ok());
  ForwardBatch batch = make_batch(kPrompt, Rows::kLast);
  batch.embedding_rows.assign(batch.input_ids.size(), -1);
  batch.embedding_rows[4] = 0;
  const std::vector<float> values(static_cast<std::size_t>(bench.runner->hidden_size()), NAN);
  batch.embedding_writes = {{.first_row = 0, .values = values}};
  std::vector<float> logits;
  EXPECT_THAT(bench.forward(batch, logits).status().message(),
              AllOf(HasSubstr("operator embedding in piece 0 makes the first, %"), HasSubstr("row 4 column 0"),
                    HasSubstr("input %embeddings was not searched")));
}

TEST(DebugMode, RefusesAnOutputAfterAnOverwritingForward) {
  RunnerBench bench = make_captured("llama", debug_options());
  ASSERT_TRUE(forward_error(bench, kPrompt).ok());
  ModelRunner& runner = *bench.runner;
  const OutputView hidden = *runner.prefill().executable().output(runner.prefill().bucket(16), 0);
  const std::int64_t rows = runner.head().padded_size(3);
  const OutputView logits = *runner.head().executable().output(runner.head().bucket(rows), 0);
  EXPECT_TRUE(runner.step().launcher().check_fresh(hidden).ok()) << "the head leaves it alone";
  EXPECT_TRUE(runner.step().launcher().check_fresh(logits).ok());
  ASSERT_TRUE(forward_error(bench, kNext).ok());
  for (const OutputView& stale : {hidden, logits})
    EXPECT_THAT(runner.step().launcher().check_fresh(stale).message(), HasSubstr("which overwrote it from byte 0 on"));
}

// Binds a silu_mul that does not write the last row of its result, so this row keeps the values of the previous
// forward.
Result<std::unique_ptr<BoundOp>> bind_forgetful(const BindArgs& args) {
  const TensorView gate_up = args.operands[0];
  const TensorView out = args.results[0];
  return make_cpu_op("forgetful", [=] {
    const std::int64_t n = out.cols();
    for (std::int64_t r = 0; r + 1 < out.rows(); ++r) {
      for (std::int64_t i = 0; i < n; ++i) {
        const float gate = gate_up.as<float>()[r * 2 * n + i];
        out.as<float>()[r * n + i] = gate / (1 + std::exp(-gate)) * gate_up.as<float>()[r * 2 * n + n + i];
      }
    }
  });
}

TEST(DebugMode, NamesAKernelThatLeavesStaleValues) {
  const KernelTable kernels = cpu_kernels().with({.op = "silu_mul", .name = "forgetful", .bind = bind_forgetful});
  const std::vector<TestRequest> full = {{ids(16, 2)}};  // 16 tokens need no padding, so the last row is a real row
  RunnerOptions options = small_options();
  options.kernels = &kernels;
  RunnerBench plain = make_captured("llama", options);
  plain.logits(full);
  for (const float x : plain.logits(full)) ASSERT_FALSE(std::isnan(x)) << "nothing shows without debug mode";
  options.debug = true;
  RunnerBench bench = make_captured("llama", options);
  EXPECT_THAT(forward_error(bench, full).message(),
              AllOf(HasSubstr("%hidden row"), HasSubstr("operator silu_mul in piece 2 makes the first"),
                    HasSubstr("row 15 column 0: its operands have none")));
  EXPECT_TRUE(forward_error(bench, kPrompt).ok()) << "a padded row may be anything";
}

// An operator whose results in a graph differ from its eager results. It copies x to y. A launch that was recorded in a
// graph then overwrites the first element of y with NaN.
class BakingOp final : public BoundOp {
 public:
  BakingOp(TensorView x, TensorView y) : x_(x), y_(y) {}
  Status enqueue(Stream& stream) const override {
    const bool bad = stream.recording();
    return static_cast<CpuStream&>(stream).launch("bakes", [x = x_, y = y_, bad] {
      std::memcpy(y.data.raw(), x.data.raw(), static_cast<std::size_t>(x.bytes()));
      if (bad) y.as<float>()[0] = NAN;
    });
  }

 private:
  TensorView x_;
  TensorView y_;
};

TEST(DebugMode, AGraphThatIsNotItsOperatorsIsNamed) {
  const KernelTable kernels = cpu_kernels().with(
      {.op = "silu_mul", .name = "bakes", .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
         TensorView half = args.operands[0];
         half.dims[static_cast<std::size_t>(half.rank - 1)] /= 2;
         return std::unique_ptr<BoundOp>(new BakingOp(half, args.results[0]));
       }});
  RunnerOptions options = debug_options();
  options.kernels = &kernels;
  RunnerBench bench = make_captured("llama", options);
  EXPECT_THAT(forward_error(bench, kPrompt).message(),
              AllOf(HasSubstr("prefill at T=16"), HasSubstr("the graph of piece 2 makes the first, %"),
                    HasSubstr("its operators, run one by one, make none")));
}

}  // namespace
}  // namespace tessera
