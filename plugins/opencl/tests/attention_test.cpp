// Compares paged attention and its plan with a reference in double. Catches: a page table that is read past the plan's
// end; a row that attends to one key too many; a missing window or softcap; a replay that uses the plan of its
// recording.
#include "plugin_under_test.h"
#include "tessera/ops/attention/attention_test_util.h"

namespace opencl_test {
namespace {

using ir::DType;
using tessera::ForwardBatch;
using tessera::testing::Config;
using tessera::testing::Request;

// Keeps the plan of a batch in device memory, at one address for all batches.
class PlanOnDevice {
 public:
  explicit PlanOnDevice(const Config& c) {
    limits_.size = sizeof limits_;
    limits_.max_requests = tessera::testing::kMaxRequests;
    limits_.max_tokens = tessera::testing::kMaxTokens;
    limits_.max_pages_per_request = tessera::testing::kMaxPages;
    limits_.page_size = c.page_size;
    limits_.num_pages = tessera::testing::kNumPages;
    planner_ = Plugin::get()->kernel("attention")->planner;
    std::size_t bytes = 0;
    Message message;
    EXPECT_CALL_OK(message, planner_->bytes(planner_->self, nullptr, &limits_, &bytes, message.get()));
    host_ = tessera::testing::poisoned_tensor(DType::kUInt8, {static_cast<std::int64_t>(bytes)});
    device_ = std::make_unique<DeviceTensor>(host_);
  }
  const tessera_plugin_limits& limits() const { return limits_; }
  tessera_plugin_address address() const { return device_->address(); }

  std::int32_t plan(const ForwardBatch& batch, Message& message) {
    std::vector<std::vector<std::int32_t>> pages;
    std::vector<tessera_plugin_page_table> tables;
    for (const tessera::PageTable& table : batch.groups[0].page_tables) {
      std::vector<std::int32_t>& numbers = pages.emplace_back();
      for (const tessera::PageId page : table.pages) numbers.push_back(page.value());
    }
    for (const std::vector<std::int32_t>& numbers : pages) tables.push_back({numbers.data(), numbers.size(), 0});
    tessera_plugin_batch c = {};
    c.size = sizeof c;
    for (const std::int32_t n : batch.query_lens) c.num_tokens += static_cast<std::size_t>(n);
    c.num_requests = batch.query_lens.size();
    c.query_lens = batch.query_lens.data();
    c.kv_lens = batch.kv_lens.data();
    c.page_tables = tables.data();
    std::size_t written = 0;
    const std::int32_t code =
        planner_->plan(planner_->self, nullptr, &limits_, &c, host_.bytes.data(), &written, message.get());
    // Writes only the plan's own bytes; the rest stays poisoned.
    HostTensor sent = tessera::testing::poisoned_tensor(DType::kUInt8, host_.dims);
    std::copy_n(host_.bytes.begin(), written, sent.bytes.begin());
    if (code == TESSERA_PLUGIN_OK) device_->load(sent);
    return code;
  }

 private:
  tessera_plugin_limits limits_ = {};
  const tessera_plugin_planner* planner_;
  HostTensor host_;
  std::unique_ptr<DeviceTensor> device_;
};

class OpenClAttention : public ::testing::TestWithParam<Config> {
 protected:
  void SetUp() override { OPENCL_REQUIRE_PLUGIN(); }
};

TEST_P(OpenClAttention, EagerAndReplayed) {
  const Config c = GetParam();
  const std::vector<Request> requests = tessera::testing::kMixed;
  const ForwardBatch first = tessera::testing::make_batch({{3, 3}}, c.page_size, 3);
  const ForwardBatch batch = tessera::testing::make_batch(requests, c.page_size, 7);
  const std::int64_t rows = tessera::testing::count_rows(requests) + c.padded_rows;
  const std::vector<HostTensor> operands = tessera::testing::make_operands(c, batch, rows, 11);
  PlanOnDevice plan(c);
  Message message;
  ASSERT_EQ(plan.plan(first, message), TESSERA_PLUGIN_OK) << message.text();
  DeviceOp op(tessera::kAttention, operands, c.attributes(), plan.limits(), plan.address());
  ASSERT_TRUE(op.bound());
  EXPECT_EQ(op.record(), 1);
  op.load(tessera::testing::make_operands(c, first, rows, 2));
  op.replay();  // uses the first plan
  ASSERT_EQ(plan.plan(tessera::testing::with_unseen_pages_freed(c, batch), message), TESSERA_PLUGIN_OK)
      << message.text();
  op.load(operands);
  op.replay();
  const std::vector<HostTensor> replayed = op.operands();
  op.load(operands);
  op.enqueue();
  const std::vector<HostTensor> eager = op.operands();
  EXPECT_EQ(eager[3].bytes, replayed[3].bytes);
  const tessera::testing::Tolerance allowed =
      c.dtype == DType::kFloat32 ? tessera::testing::Tolerance{1e-5, 1e-5} : tessera::testing::tolerance(c.dtype, 4);
  tessera::testing::expect_close(eager[3], tessera::testing::reference(c, batch, operands), allowed, "attention");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, OpenClAttention,
    ::testing::Values(Config{}, Config{.heads = 3, .kv_heads = 1, .head_dim = 64}, Config{.head_dim = 80},
                      Config{.head_dim = 128, .page_size = 8}, Config{.heads = 2, .kv_heads = 2, .head_dim = 256},
                      Config{.window = 20}, Config{.softcap = 3}, Config{.sinks = true},
                      Config{.dtype = DType::kFloat16, .cache_dtype = DType::kFloat16, .head_dim = 64},
                      Config{.dtype = DType::kFloat32, .cache_dtype = DType::kBFloat16, .window = 64}));

// Catches: a plan that is made although it exceeds its memory; a plan that contains a page outside the cache.
TEST_F(OpenClAttention, RefusesWhatExceedsThePlan) {
  const Config c;
  PlanOnDevice plan(c);
  Message message;
  const std::vector<Request> many(static_cast<std::size_t>(tessera::testing::kMaxRequests) + 1, {1, 1});
  EXPECT_EQ(plan.plan(tessera::testing::make_batch(many, c.page_size, 1), message), TESSERA_PLUGIN_RESOURCE_EXHAUSTED);
  EXPECT_NE(std::string(message.text()).find("41 requests"), std::string::npos) << message.text();
  ForwardBatch outside = tessera::testing::make_batch({{1, 20}}, c.page_size, 1);
  outside.groups[0].own({{tessera::PageId(3), tessera::PageId(600)}});
  EXPECT_EQ(plan.plan(outside, message), TESSERA_PLUGIN_INTERNAL);
  EXPECT_NE(std::string(message.text()).find("page 600 of 600"), std::string::npos) << message.text();
  outside.groups[0].own({{tessera::PageId(3)}});
  EXPECT_EQ(plan.plan(outside, message), TESSERA_PLUGIN_INTERNAL);
}

}  // namespace
}  // namespace opencl_test
