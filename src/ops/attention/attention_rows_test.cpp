// Tests that the bits of a row's result depend on nothing but the row and its own keys and values. Catches: a scale or
// a sum that several rows share; a kernel whose order of sums depends on other rows.
#include <algorithm>

#include "tessera/ops/attention/attention_library_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;

// A batch and its operands. Tests change some of the operands, run again and compare the results.
class Forward {
 public:
  Forward(const Config& c, std::vector<Request> requests, bool deterministic)
      : Forward(c, requests, deterministic, make_batch(requests, c.page_size, 5)) {
    operands = make_operands(c, batch_, count_rows(requests) + c.padded_rows, 6);
  }

  std::string run(const std::vector<HostTensor>& with) const {
    const HostTensor out = run_op(kAttention, kAttentionCpu, with, c_.attributes(), bench_->context).operands[3];
    return {reinterpret_cast<const char*>(out.bytes.data()), out.bytes.size()};
  }
  // Returns the bytes of the rows of request `b` in a result of run().
  std::string rows(const std::string& out, std::size_t b) const {
    return out.substr(static_cast<std::size_t>(first_row(b)) * row_bytes(),
                      static_cast<std::size_t>(requests_[b].query_len) * row_bytes());
  }
  std::string row(const std::string& out, std::int64_t row) const {
    return out.substr(static_cast<std::size_t>(row) * row_bytes(), row_bytes());
  }

  // Returns operands in which all requests but `b` have other queries, keys and values. The new keys and values are
  // large numbers, or NaN.
  std::vector<HostTensor> with_other_requests(std::size_t b) const {
    std::vector<HostTensor> other = with_other_rows(first_row(b), requests_[b].query_len);
    std::vector<float> token(static_cast<std::size_t>(c_.kv_heads * c_.head_dim));
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (i == b) continue;
      for (std::size_t e = 0; e < token.size(); ++e)
        token[e] = i % 4 == 1 ? std::numeric_limits<float>::quiet_NaN() : 0.01F * static_cast<float>(e % 97) + 5.0F;
      for (std::int64_t p = 0; p < requests_[i].kv_len; ++p)
        for (const std::size_t cache : {1u, 2u}) store_token(c_, other[cache], slot_of(c_, batch_, i, p), token);
    }
    return other;
  }
  // Returns operands in which all rows have other queries, except the rows `first` … `first` + `count` - 1.
  std::vector<HostTensor> with_other_rows(std::int64_t first, std::int64_t count) const {
    std::vector<HostTensor> other = operands;
    other[0] = random_tensor(c_.dtype, operands[0].dims, 78, -40, 40);
    const std::int64_t columns = c_.heads * c_.head_dim;
    for (std::int64_t at = first * columns; at < (first + count) * columns; ++at) other[0].set(at, operands[0].at(at));
    return other;
  }

  // Returns a batch of request `b` alone. The request keeps its pages of the caches.
  Forward alone(std::size_t b, bool deterministic) const {
    ForwardBatch batch;
    batch.query_lens = {requests_[b].query_len};
    batch.kv_lens = {requests_[b].kv_len};
    batch.groups.emplace_back().own({(*batch_.groups[0].owned)[b]});
    Forward forward(c_, {requests_[b]}, deterministic, std::move(batch));
    forward.operands = operands;
    const std::int64_t columns = c_.heads * c_.head_dim;
    forward.operands[0] = random_tensor(c_.dtype, {requests_[b].query_len, columns}, 1, -1, 1);
    forward.operands[3] = forward.operands[0];
    for (std::int64_t at = 0; at < requests_[b].query_len * columns; ++at)
      forward.operands[0].set(at, operands[0].at(first_row(b) * columns + at));
    return forward;
  }

  std::vector<HostTensor> operands;

 private:
  Forward(const Config& c, const std::vector<Request>& requests, bool deterministic, ForwardBatch batch)
      : c_(c), requests_(requests), batch_(std::move(batch)) {
    const bool decode = std::ranges::all_of(requests, [](const Request& request) { return request.query_len == 1; });
    bench_ = std::make_unique<Bench>(
        Bench::create(c.page_size, {{c}}, decode ? BatchKind::kDecode : BatchKind::kExtend, "", deterministic));
    bench_->plan(batch_);
  }

  std::int64_t first_row(std::size_t b) const {
    std::int64_t row = 0;
    for (std::size_t i = 0; i < b; ++i) row += requests_[i].query_len;
    return row;
  }
  std::size_t row_bytes() const { return static_cast<std::size_t>(c_.heads * c_.head_dim) * ir::dtype_size(c_.dtype); }

  Config c_;
  std::vector<Request> requests_;
  ForwardBatch batch_;
  std::unique_ptr<Bench> bench_;
};

const std::vector<Request> kTwelveDecodes = {{1, 1},  {1, 130}, {1, 64}, {1, 97}, {1, 500}, {1, 5},
                                             {1, 33}, {1, 128}, {1, 65}, {1, 63}, {1, 200}, {1, 2}};
// Some requests have several rows, as when drafts are verified. The others are decodes and prompts.
const std::vector<Request> kSeveralRows = {{4, 130}, {1, 64}, {3, 3}, {2, 200}, {40, 90}, {4, 97}, {1, 33}, {5, 70}};

class AttentionRows : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "the CPU's kernels are tested";
  }
  // Tiles of at most 8 rows have their own kernels. With 2 query heads per KV head, four tokens of a request fit in
  // such a tile. With 12 query heads per KV head, not even one token fits.
  static std::vector<Config> configs() {
    std::vector<Config> configs;
    for (const auto& [head_dim, group] : {std::pair{20, 3}, {64, 8}, {128, 2}, {64, 12}}) {
      configs.push_back(library_config(DType::kFloat32, head_dim, 2, group));
      configs.back().cache_dtype = GetParam();
    }
    configs.back().window = 40;
    return configs;
  }
};

TEST_P(AttentionRows, OtherRequestsChangeNoBits) {
  for (const Config& c : configs())
    for (const std::vector<Request>& requests : {kTwelveDecodes, kSeveralRows})
      for (const bool deterministic : {false, true}) {
        const Forward forward(c, requests, deterministic);
        const std::string before = forward.run(forward.operands);
        for (const std::size_t b : {std::size_t{1}, requests.size() - 2}) {
          const std::string after = forward.run(forward.with_other_requests(b));
          EXPECT_EQ(forward.rows(after, b) == forward.rows(before, b), true) << describe(c, "") << " request " << b;
          EXPECT_EQ(forward.rows(after, 0) == forward.rows(before, 0), false) << "nothing was disturbed";
        }
      }
}

TEST_P(AttentionRows, OtherRowsOfTheRequestChangeNoBits) {
  for (const Config& c : configs())
    for (const bool deterministic : {false, true}) {
      const Forward forward(c, kSeveralRows, deterministic);
      const std::string before = forward.run(forward.operands);
      for (const std::int64_t row : {2, 5, 50}) {
        const std::string after = forward.run(forward.with_other_rows(row, 1));
        EXPECT_EQ(forward.row(after, row) == forward.row(before, row), true) << describe(c, "") << " row " << row;
        EXPECT_EQ(forward.row(after, row + 1) == forward.row(before, row + 1), false) << "nothing was disturbed";
      }
    }
}

// A decode's tile always has the query heads of one KV head, whatever else is in the batch. The tiles of a prompt are
// smaller in small batches, so the prompt's bits may depend on the batch. Only in deterministic forwards must a prompt
// have the same bits alone and in a batch.
TEST_P(AttentionRows, ARequestAloneHasTheBitsOfTheBatch) {
  for (const Config& c : configs())
    for (const std::vector<Request>& requests : {kTwelveDecodes, kSeveralRows})
      for (const bool deterministic : {false, true}) {
        if (!deterministic && requests[0].query_len > 1) continue;
        const Forward together(c, requests, deterministic);
        const std::string all = together.run(together.operands);
        for (std::size_t b = 1; b < requests.size(); b += 2) {
          const Forward alone = together.alone(b, deterministic);
          EXPECT_EQ(alone.rows(alone.run(alone.operands), 0) == together.rows(all, b), true)
              << describe(c, "") << " request " << b << (deterministic ? " deterministic" : "");
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Caches, AttentionRows, ::testing::Values(DType::kUInt8, DType::kBFloat16, DType::kFloat8E4M3),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

}  // namespace
}  // namespace tessera::testing
