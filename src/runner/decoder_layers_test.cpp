// Tests the kernel that runs all decoder layers in one launch. Catches: results that differ from the results of the
// single operators (the tests use context lengths at the borders of tiles and of the key ranges that thread blocks
// take); wrong results with scattered pages or with padding rows; bits that change from run to run; a kernel that never
// runs; and a kernel that two engines run at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/json.h"
#include "tessera/device/testing/environment.h"
#include "tessera/model/weights/weight_source.h"
#include "tessera/ops/device_registry.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kContext = 2048;
constexpr std::int64_t kRequests = 2;  // the kernel runs steps of at most this many requests
constexpr std::int64_t kLayers = 3;

// The layers of Qwen3-0.6B.
constexpr const char* kConfig = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
  "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 512,
  "rms_norm_eps": 1e-6, "rope_theta": 1000000, "max_position_embeddings": 4096, "tie_word_embeddings": true,
  "hidden_act": "silu", "torch_dtype": "bfloat16"})";

// Makes one request for each length. The last `tokens` tokens of each request are new. If `tokens` is 0, all tokens are
// new. The pages of a request are not contiguous.
ForwardBatch make_batch(const std::vector<std::int64_t>& lengths, std::int64_t tokens) {
  ForwardBatch batch;
  std::vector<std::vector<PageId>> tables;
  CacheGroupBatch& group = batch.groups.emplace_back();
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const std::int64_t length = lengths[b];
    std::vector<PageId>& pages = tables.emplace_back();
    for (std::int64_t p = 0; p * kPageSize < length; ++p)
      pages.emplace_back(static_cast<std::int32_t>(1 + p * kRequests + static_cast<std::int64_t>(b)));
    for (std::int64_t position = tokens == 0 ? 0 : length - tokens; position < length; ++position) {
      const PageId page = pages[static_cast<std::size_t>(position / kPageSize)];
      batch.input_ids.emplace_back(
          static_cast<std::int32_t>((position * 31 + static_cast<std::int64_t>(b) * 97) % 512));
      batch.input_rows.push_back(-1);
      batch.positions.push_back(static_cast<std::int32_t>(position));
      group.slots.emplace_back(static_cast<std::int32_t>(page.value() * kPageSize + position % kPageSize));
    }
    batch.query_lens.push_back(static_cast<std::int32_t>(tokens == 0 ? length : tokens));
    batch.kv_lens.push_back(static_cast<std::int32_t>(length));
    batch.wanted_rows.push_back(static_cast<std::int32_t>(batch.input_ids.size()) - 1);
  }
  group.own(std::move(tables));
  return batch;
}

struct Made {
  std::unique_ptr<ModelRunner> runner;

  // Runs the batch and returns the logits of its wanted rows. If `replay` is false, launches the graph's kernels one by
  // one.
  std::vector<float> logits(const ForwardBatch& batch, bool force_eager, Decision* decision = nullptr,
                            bool replay = true) {
    std::vector<float> made(batch.wanted_rows.size() * static_cast<std::size_t>(runner->vocab_size()), NAN);
    const Result<ForwardOutputs> out = runner->forward(
        {.batch = batch, .sampling = {}, .logits = made, .force_eager = force_eager, .replay_graphs = replay});
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    if (out.ok() && decision != nullptr) *decision = out->decision;
    return made;
  }
  // Returns the number of kernels in the smallest decode graph.
  std::int64_t nodes() const {
    const MemoryReport report = runner->memory();
    for (const RunnerMemory& memory : report.runners)
      if (memory.role == RunnerRole::kDecode && !memory.sizes.empty()) return memory.sizes.front().graphs.nodes;
    return 0;
  }
};

Result<Made> make(Device& device, const KernelTable* kernels, std::vector<std::int64_t> decode_sizes) {
  RunnerOptions options = testing::small_options();
  options.kernels = kernels;
  options.prefill_sizes = {64};
  options.decode_sizes = std::move(decode_sizes);
  options.max_tokens = 4096;
  options.max_requests = kRequests;
  options.context_length = kContext;
  options.page_size = kPageSize;
  options.num_pages = {1 + kRequests * kContext / kPageSize};
  const ModelConfig config =
      TRY(ModelConfig::from_json(TRY(Json::parse(kConfig, "config")), "config", built_in_families()));
  ModelGraphs graphs = TRY(build_model(
      config, {.dtype = ir::DType::kBFloat16, .page_size = options.page_size, .max_requests = options.max_requests},
      built_in_ops(), built_in_families()));
  Weights weights = TRY(Weights::load(graphs.weights, dummy_source(5), device, false));
  Made made{TRY(ModelRunner::create(std::move(graphs), std::move(weights), device, std::move(options)))};
  TRY(made.runner->capture());
  return made;
}

// Returns ‖a - b‖ / ‖b‖ of a row.
double distance(const std::vector<float>& a, const std::vector<float>& b, std::size_t row, std::size_t columns) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

class DecoderLayers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernels_.joined().size() == plain_.joined().size()) GTEST_SKIP() << "this device has no kernel of all layers";
  }
  // Returns whether the graphs of `joined` run the kernel under test. They do if they have far fewer kernels than the
  // graphs of `each`, which run every operator by itself.
  static bool has_kernel(const Made& joined, const Made& each) { return joined.nodes() + 7 * kLayers < each.nodes(); }

  DeviceRegistry devices_ = built_in_devices();
  std::unique_ptr<Device> device_ = *devices_.open(testing::test_device_name());
  const KernelTable& kernels_ = **devices_.kernels(device_->properties().type);
  const KernelTable plain_ = kernels_.with(**kernels_.get("rms_norm"));
};

// Compares one decode step for each case. A case lists the lengths of its requests. `smallest` is the smallest decode
// size. If it is 2, a step with one request has a padding row.
void compare(Made* joined, Made* each, const std::vector<std::vector<std::int64_t>>& cases, std::int64_t smallest) {
  double greatest = 0;
  for (const std::vector<std::int64_t>& lengths : cases) {
    std::string what;
    for (const std::int64_t length : lengths) what += std::to_string(length) + " ";
    // A request's prompt consists of all its tokens except the last. If a request has only one token, this token is the
    // prompt, so it is computed twice.
    std::vector<std::int64_t> prompts = lengths;
    for (std::int64_t& n : prompts) n = std::max<std::int64_t>(n - 1, 1);
    for (Made* made : {joined, each}) made->logits(make_batch(prompts, 0), true);
    const ForwardBatch batch = make_batch(lengths, 1);
    Decision decision;
    const std::vector<float> actual = joined->logits(batch, false, &decision);
    EXPECT_EQ(decision.runner, RunnerKind::kDecode);
    EXPECT_EQ(decision.padding, std::max<std::int64_t>(smallest - std::ssize(lengths), 0));
    const std::vector<float> expected = each->logits(batch, false);
    const auto columns = static_cast<std::size_t>(joined->runner->vocab_size());
    for (std::size_t row = 0; row < lengths.size(); ++row) {
      const double d = distance(actual, expected, row, columns);
      EXPECT_LT(d, 0.03) << "request " << row << " of " << what;
      greatest = std::isnan(d) ? d : std::max(greatest, d);
    }
    EXPECT_EQ(actual, joined->logits(batch, false)) << "a second run of " << what << "gives other bits";
    EXPECT_EQ(actual, joined->logits(batch, false, nullptr, /*replay=*/false))
        << "launches without a graph of " << what << "give other bits";
  }
  std::printf("  greatest distance of a row of logits %.3g\n", greatest);
}

TEST_F(DecoderLayers, EqualTheirOperators) {
  const std::vector<std::vector<std::int64_t>> cases = {
      {1}, {2}, {63}, {64}, {65}, {1024}, {1025}, {2000}, {64, 65}, {1500, 2}, {1, 2}, {1024, 1023}, {1000, 2000}};
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1, 2}, std::vector<std::int64_t>{2}}) {
    Result<Made> joined = make(*device_, &kernels_, sizes);
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    Result<Made> each = make(*device_, &plain_, sizes);
    ASSERT_TRUE(each.ok()) << each.status().to_string();
    EXPECT_TRUE(has_kernel(*joined, *each)) << "the kernel of all layers does not run";
    compare(&*joined, &*each, cases, sizes.front());
  }
}

// The thread blocks of the kernel wait for one another. If two launches ran at once, the device might not have room for
// all of their blocks, and both would wait forever.
TEST_F(DecoderLayers, AreRunByOneEngineOfTheProcess) {
  Result<Made> each = make(*device_, &plain_, {1});
  ASSERT_TRUE(each.ok()) << each.status().to_string();
  {
    Result<Made> first = make(*device_, &kernels_, {1});
    ASSERT_TRUE(first.ok()) << first.status().to_string();
    Result<Made> second = make(*device_, &kernels_, {1});
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    EXPECT_TRUE(has_kernel(*first, *each));
    EXPECT_EQ(second->nodes(), each->nodes());
  }
  Result<Made> later = make(*device_, &kernels_, {1});
  ASSERT_TRUE(later.ok()) << later.status().to_string();
  EXPECT_TRUE(has_kernel(*later, *each)) << "the first engine is gone, and still has the device";
}

}  // namespace
}  // namespace tessera
