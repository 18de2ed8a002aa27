// Checks attention on each kernel that the device has, with the device's planner, against a double-precision reference.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tessera/ops/attention/attention_test_util.h"

namespace tessera::testing {

// Returns the names of the kernels to test. The CPU has a single kernel, which needs no name.
inline std::vector<std::string> kernels(BatchKind kind) {
  if (!on_cuda()) return {""};
  return kind == BatchKind::kExtend ? std::vector<std::string>{"fa3", "fa2", "tessera"}
                                    : std::vector<std::string>{"hopper", "fa2", "cudnn", "tessera"};
}

inline Config library_config(ir::DType dtype, std::int64_t head_dim, std::int64_t kv_heads, std::int64_t group) {
  return {.dtype = dtype,
          .cache_dtype = dtype,
          .heads = kv_heads * group,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(head_dim))};
}

inline std::string describe(const Config& c, const std::string& kernel) {
  return kernel + " d" + std::to_string(c.head_dim) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + (c.window > 0 ? " window " + std::to_string(c.window) : "") +
         (c.cache_dtype != c.dtype ? " cache " + std::string(ir::dtype_name(c.cache_dtype)) : "") +
         (c.softcap > 0 ? " softcap" : "") + (c.sinks ? " sinks" : "");
}

// An attention operator and the plans that it reads. The operator is recorded for one batch and replayed for others.
struct Recorded {
  static Recorded create(const Config& c, BatchKind kind, const std::string& kernel, const ForwardBatch& batch,
                         std::int64_t rows) {
    Recorded r{c, Bench::create(c.page_size, {{c}}, kind, kernel), nullptr};
    r.bench.plan(batch, rows);
    Result<const KernelDef*> def = kernel_under_test(kAttentionCpu);
    EXPECT_TRUE(def.ok()) << def.status().message();
    Result<std::unique_ptr<OpCase>> op = OpCase::create(
        test_device(), kAttention, **def, make_operands(c, batch, rows, 2), c.attributes(), r.bench.context);
    EXPECT_TRUE(op.ok()) << op.status().message();
    r.op = *std::move(op);
    const Status recorded = r.op->record();
    EXPECT_TRUE(recorded.ok()) << recorded.message();
    return r;
  }
  HostTensor replay(const ForwardBatch& batch, const std::vector<HostTensor>& operands, std::int64_t rows) {
    bench.plan(with_unseen_pages_freed(config, batch), rows);
    EXPECT_TRUE(op->load(operands).ok());
    EXPECT_TRUE(op->replay().ok());
    Result<HostTensor> out = op->operand(3);
    EXPECT_TRUE(out.ok()) << out.status().message();
    return *std::move(out);
  }
  Config config;
  Bench bench;
  std::unique_ptr<OpCase> op;
};

// Records each kernel in a graph for a short prompt, and replays the graph for `requests`. The padded rows of the
// output must stay unchanged.
inline void check_extend(const Config& c, const std::vector<Request>& requests) {
  const std::int64_t rows = count_rows(requests) + c.padded_rows;
  const ForwardBatch batch = make_batch(requests, c.page_size, 5);
  const std::vector<HostTensor> operands = make_operands(c, batch, rows, 6);
  const std::vector<double> expected = reference(c, batch, operands);
  for (const std::string& kernel : kernels(BatchKind::kExtend)) {
    Recorded recorded = Recorded::create(c, BatchKind::kExtend, kernel, make_batch({{3, 3}}, c.page_size, 1), rows);
    if (recorded.bench.kernel(c) != kernel) continue;  // the kernel does not support the shape
    const HostTensor out = recorded.replay(batch, operands, rows);
    const std::string what = "extend " + describe(c, kernel);
    expect_rows_close(out, expected, count_rows(requests), c.head_dim, what);
    for (std::int64_t i = count_rows(requests) * out.dims[1]; i < out.size(); ++i)
      ASSERT_TRUE(std::isnan(out.at(i))) << what << " wrote to padding";
  }
}

inline const std::vector<Request> kRagged = {{1, 1},  {5, 5},  {1, 130},   {70, 90},    {1, 64},   {33, 200},
                                             {2, 65}, {1, 97}, {193, 193}, {129, 1000}, {1, 1500}, {96, 192}};

// Records each kernel in a graph for `rows` requests, while the plan has a single request with one key. Then replays
// the graph for each batch. A batch is a list of kv_lens of single-row requests.
inline void check_decode(const Config& c, std::int64_t rows, const std::vector<std::vector<std::int32_t>>& batches) {
  struct Step {
    ForwardBatch batch;
    std::vector<HostTensor> operands;
    std::vector<double> expected;
  };
  std::vector<Step> steps;
  for (const std::vector<std::int32_t>& kv_lens : batches) {
    std::vector<Request> requests;
    for (const std::int32_t kv_len : kv_lens) requests.push_back({1, kv_len});
    const auto seed = static_cast<std::uint32_t>(20 + steps.size());
    Step& step = steps.emplace_back();
    step.batch = make_batch(requests, c.page_size, seed);
    step.operands = make_operands(c, step.batch, rows, seed);
    step.expected = reference(c, step.batch, step.operands);
  }
  for (const std::string& kernel : kernels(BatchKind::kDecode)) {
    Recorded recorded = Recorded::create(c, BatchKind::kDecode, kernel, make_batch({{1, 1}}, c.page_size, 1), rows);
    if (recorded.bench.kernel(c) != kernel) continue;
    for (const Step& step : steps)
      expect_rows_close(recorded.replay(step.batch, step.operands, rows), step.expected, step.batch.num_requests(),
                        c.head_dim,
                        "decode " + describe(c, kernel) + " " + std::to_string(step.batch.num_requests()) + " of " +
                            std::to_string(rows));
  }
}

}  // namespace tessera::testing
