// Catches kernels of deterministic forwards in which a row's result depends on one of these: the number of rows;
// addresses; other requests of the batch; padding; how a prompt is cut into chunks; whether a token is computed in an
// extend or a decode step. All comparisons are bitwise.
#include <gtest/gtest.h>

#include "tessera/ops/attention/attention_test_util.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rows/activation.h"
#include "tessera/ops/rows/norm.h"
#include "tessera/ops/rows/row_test_util.h"
#include "tessera/ops/sampling/softmax.h"

namespace tessera::testing {
namespace {

using ir::DType;

ForwardContext deterministic_context() {
  ForwardContext context;
  context.limits.deterministic = true;
  return context;
}

std::vector<std::int64_t> up_to(std::int64_t last) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(last));
  std::iota(counts.begin(), counts.end(), 1);
  return counts;
}

class Deterministic : public ::testing::TestWithParam<DType> {};

// Compares the bits of linear's rows between forwards. `counts` lists the forwards' numbers of rows. If `terms` is
// true, linear also adds a bias and a residual. The residual cancels most of each sum, so that rounding to the dtype
// hides no difference.
void check_linear(DType dtype, std::int64_t n, std::int64_t k, bool terms, const std::vector<std::int64_t>& counts) {
  const std::int64_t rows = counts.back();
  const ForwardContext context = deterministic_context();
  std::vector<HostTensor> operands = {random_tensor(dtype, {rows, k}, 1), random_tensor(dtype, {n, k}, 2)};
  std::vector<std::size_t> row_wise = {0};
  if (terms) {
    operands.push_back(random_tensor(dtype, {n}, 3));
    HostTensor residual = run_op(kLinear, kLinearCpu, operands, {{"bias", true}}, context).results[0];
    for (std::int64_t i = 0; i < residual.size(); ++i) residual.set(i, -residual.at(i));
    operands.push_back(std::move(residual));
    row_wise.push_back(3);
  }
  expect_any_row_count(kLinear, kLinearCpu, operands, row_wise, counts, {{"bias", terms}, {"residual", terms}},
                       context);
}

TEST_P(Deterministic, LinearBitsDoNotDependOnTheRowCount) { check_linear(GetParam(), 40, 96, true, up_to(300)); }

TEST_P(Deterministic, RowCountNeverChangesLinearBitsOfAnySize) {
  const std::vector<std::int64_t> counts = {1, 2, 4, 5, 7, 8, 9, 16, 33, 64, 128, 129, 200};
  for (const bool terms : {false, true})
    for (const auto& [n, k] : {std::pair{1, 31}, {67, 131}, {64, 1024}, {384, 300}, {130, 2080}})
      check_linear(GetParam(), n, k, terms, counts);
}

// Some row lengths are odd, so that rows start at every alignment.
TEST_P(Deterministic, RowWiseOperatorsIgnoreTheRowCount) {
  const DType dtype = GetParam();
  const std::vector<std::int64_t> counts = {1, 2, 3, 8, 31, 64};
  const ir::Attributes eps = {{"eps", 1e-6}};
  for (const std::int64_t n : {33, 64, 1100}) {
    const HostTensor x = random_tensor(dtype, {70, n}, 1);
    const HostTensor residual = random_tensor(dtype, {70, n}, 2);
    const HostTensor w = random_tensor(dtype, {n}, 3);
    const HostTensor pairs = random_tensor(dtype, {70, 2 * n}, 4, -4, 4);
    expect_any_row_count(kRmsNorm, kRmsNormCpu, {x, w}, {0}, counts, eps);
    expect_any_row_count(kAddRmsNorm, kAddRmsNormCpu, {x, residual, w}, {0, 1}, counts, eps);
    expect_any_row_count(kHeadNorm, kHeadNormCpu, {pairs, w}, {0}, counts, eps);
    expect_any_row_count(kSiluMul, kSiluMulCpu, {pairs}, {0}, counts);
    expect_any_row_count(kGeluMul, kGeluMulCpu, {pairs}, {0}, counts);
    expect_any_row_count(kSilu, kSiluCpu, {x}, {0}, counts);
    expect_any_row_count(kSoftcap, kSoftcapCpu, {x}, {0}, counts, {{"cap", 3.0}});
    if (dtype == DType::kFloat32) expect_any_row_count(kLogSoftmax, kLogSoftmaxCpu, {x}, {0}, counts);
  }
}

// One request's queries, keys and values at every position.
struct History {
  HostTensor q;  // [length, heads * head_dim]
  HostTensor k;  // [length, kv_heads * head_dim]
  HostTensor v;
  std::int64_t length() const { return q.dims[0]; }
};

History make_history(const Config& c, std::int64_t length) {
  return {random_tensor(c.dtype, {length, c.heads * c.head_dim}, 11, -2, 2),
          random_tensor(DType::kFloat32, {length, c.kv_heads * c.head_dim}, 12, -2, 2),
          random_tensor(DType::kFloat32, {length, c.kv_heads * c.head_dim}, 13, -2, 2)};
}

// A forward that computes the positions [begin, end) of one request. The batch has other requests before and after it.
struct Forward {
  std::int64_t begin;
  std::int64_t end;
  std::vector<Request> before = {};
  std::vector<Request> after = {};
  std::int64_t padding = 0;
  BatchKind kind = BatchKind::kExtend;
};

void put_rows(HostTensor& to, std::int64_t row, const HostTensor& rows) {
  const auto at = static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(row_bytes(to));
  std::copy(rows.bytes.begin(), rows.bytes.end(), to.bytes.begin() + at);
}

// Returns attention's output for the request's rows. Each `seed` puts the request's keys and values into other pages.
HostTensor attend(const Config& c, Bench& bench, const History& history, const Forward& forward, std::uint32_t seed) {
  std::vector<Request> requests = forward.before;
  requests.push_back({static_cast<std::int32_t>(forward.end - forward.begin), static_cast<std::int32_t>(forward.end)});
  requests.insert(requests.end(), forward.after.begin(), forward.after.end());
  const ForwardBatch batch = make_batch(requests, c.page_size, seed);
  const std::int64_t rows = count_rows(requests) + forward.padding;
  std::vector<HostTensor> operands = make_operands(c, batch, rows, seed);
  const std::int64_t first_row = count_rows(forward.before);
  put_rows(operands[0], first_row, slice_rows(history.q, forward.begin, forward.end));
  for (const auto& [cache, rows_of] : {std::pair{&operands[1], &history.k}, std::pair{&operands[2], &history.v}})
    for (std::int64_t p = 0; p < forward.end; ++p) {
      const std::vector<double> row = slice_rows(*rows_of, p, p + 1).values();
      store_token(c, *cache, slot_of(c, batch, forward.before.size(), p), {row.begin(), row.end()});
    }
  bench.plan(batch, forward.kind == BatchKind::kDecode ? rows : 0);
  const OpOutcome out = run_op(kAttention, kAttentionCpu, operands, c.attributes(), bench.context);
  return slice_rows(out.operands[3], first_row, first_row + forward.end - forward.begin);
}

struct AttentionCase {
  const char* name;
  Config config;
};

Config make_config(DType dtype, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                   std::int64_t window = 0, double softcap = 0, bool sinks = false) {
  return {.dtype = dtype,
          .cache_dtype = dtype,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .window = window,
          .softcap = softcap,
          .scale = 1 / std::sqrt(static_cast<double>(head_dim)),
          .sinks = sinks};
}

Config over(DType cache, Config c) {
  c.cache_dtype = cache;
  return c;
}

class DeterministicAttention : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(DeterministicAttention, RowsDependOnTheirRequestAlone) {
  const Config c = GetParam().config;
  if (on_cuda() && is_int8_cache(c.cache_dtype)) GTEST_SKIP() << "caches of int8 are the CPU's";
  constexpr std::int64_t kLength = 205;
  const History history = make_history(c, kLength);
  Bench extend = Bench::create(c.page_size, {{c}}, BatchKind::kExtend, "", true);
  Bench decode = Bench::create(c.page_size, {{c}}, BatchKind::kDecode, "", true);
  const HostTensor whole = attend(c, extend, history, {0, kLength}, 1);

  std::uint32_t seed = 2;
  const auto check = [&](const Forward& forward) {
    Bench& bench = forward.kind == BatchKind::kDecode ? decode : extend;
    const HostTensor part = attend(c, bench, history, forward, seed++);
    EXPECT_EQ(part.bytes, slice_rows(whole, forward.begin, forward.end).bytes)
        << "positions " << forward.begin << " … " << forward.end - 1 << " beside " << forward.before.size() << " and "
        << forward.after.size() << " requests, " << forward.padding << " rows of padding"
        << (forward.kind == BatchKind::kDecode ? ", decode" : "");
  };
  check({0, kLength, {{1, 130}, {33, 40}}, {{5, 5}, {1, 300}}, 11});
  for (const std::int64_t length : {1, 7, 16, 64}) {
    check({0, length});
    check({63, 63 + length, {{9, 70}}, {{1, 1}, {40, 200}}, 3});
    check({100, 100 + length});
    check({kLength - length, kLength, {{64, 64}}});
  }
  for (const std::int64_t position : {std::int64_t{0}, std::int64_t{64}, std::int64_t{127}, kLength - 1}) {
    check({position, position + 1, {}, {}, 0, BatchKind::kDecode});
    check({position, position + 1, {{1, 500}, {1, 3}}, std::vector<Request>(18, {1, 90}), 4, BatchKind::kDecode});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DeterministicAttention,
    ::testing::Values(
        AttentionCase{"f32_64", make_config(DType::kFloat32, 4, 2, 64)},
        AttentionCase{"f32_80_window", make_config(DType::kFloat32, 4, 4, 80, 37)},
        AttentionCase{"bf16_64_many_groups", make_config(DType::kBFloat16, 12, 2, 64)},
        AttentionCase{"bf16_80", make_config(DType::kBFloat16, 4, 1, 80)},
        AttentionCase{"bf16_128", make_config(DType::kBFloat16, 4, 2, 128)},
        AttentionCase{"bf16_128_window", make_config(DType::kBFloat16, 6, 2, 128, 50)},
        AttentionCase{"f16_128_softcap", make_config(DType::kFloat16, 4, 2, 128, 0, 20)},
        AttentionCase{"bf16_64_sinks", make_config(DType::kBFloat16, 8, 1, 64, 0, 0, true)},
        AttentionCase{"bf16_64_sinks_window", make_config(DType::kBFloat16, 8, 1, 64, 50, 0, true)},
        AttentionCase{"bf16_512_window_softcap", make_config(DType::kBFloat16, 8, 2, 512, 50, 20)},
        AttentionCase{"f16_512_sinks", make_config(DType::kFloat16, 8, 1, 512, 0, 0, true)},
        AttentionCase{"f16_64_one_head", make_config(DType::kFloat16, 3, 3, 64)},
        AttentionCase{"f32_float8_80", over(DType::kFloat8E4M3, make_config(DType::kFloat32, 4, 2, 80))},
        AttentionCase{"bf16_float8_128_window", over(DType::kFloat8E4M3, make_config(DType::kBFloat16, 6, 2, 128, 50))},
        AttentionCase{"f16_float8_64_sinks",
                      over(DType::kFloat8E4M3, make_config(DType::kFloat16, 8, 1, 64, 0, 0, true))},
        AttentionCase{"bf16_float8_256_softcap",
                      over(DType::kFloat8E4M3, make_config(DType::kBFloat16, 4, 2, 256, 0, 20))},
        AttentionCase{"f32_int8_80", over(DType::kUInt8, make_config(DType::kFloat32, 4, 2, 80))},
        AttentionCase{"bf16_int8_128_window", over(DType::kUInt8, make_config(DType::kBFloat16, 6, 2, 128, 50))},
        AttentionCase{"f16_int8_64_sinks", over(DType::kUInt8, make_config(DType::kFloat16, 8, 1, 64, 0, 0, true))}),
    [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(Types, Deterministic, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

}  // namespace
}  // namespace tessera::testing
