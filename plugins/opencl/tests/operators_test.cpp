// Compares the plugin's kernels with the engine's CPU kernels on random shapes. Catches: a wrong formula, index or
// offset; a missing tail; a command buffer that keeps contents instead of addresses; a padded row that changes other
// rows.
#include "plugin_under_test.h"
#include "tessera/ops/cache/kv_store.h"
#include "tessera/ops/cache/qkv_rope_store.h"
#include "tessera/ops/embedding/embedding.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rows/activation.h"
#include "tessera/ops/rows/elementwise.h"
#include "tessera/ops/rows/gather.h"
#include "tessera/ops/rows/norm.h"
#include "tessera/ops/rows/rotary.h"
#include "tessera/ops/rows/view.h"
#include "tessera/ops/sampling/logit_edits.h"
#include "tessera/ops/sampling/sample.h"
#include "tessera/ops/sampling/softmax.h"
#include "tessera/ops/sampling/top_logprobs.h"

namespace opencl_test {
namespace {

using ir::DType;
using tessera::KernelDef;
using tessera::testing::expect_close;
using tessera::testing::filled_tensor;
using tessera::testing::int_tensor;
using tessera::testing::OpOutcome;
using tessera::testing::random_tensor;
using tessera::testing::Tolerance;
using tessera::testing::tolerance;

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

class OpenClOperators : public ::testing::Test {
 protected:
  void SetUp() override { OPENCL_REQUIRE_PLUGIN(); }

  // Runs the operator eagerly and as a command buffer that was recorded with other contents. Both must give the same
  // bits, and the results of the CPU's kernel up to `allowed`.
  OpOutcome expect_same(const ir::OpDecl& decl, const KernelDef& cpu, const std::vector<HostTensor>& operands,
                        const ir::Attributes& attributes, Tolerance allowed, const std::string& what) {
    const OpOutcome expected = tessera::testing::run_op(decl, cpu, operands, attributes);
    tessera_plugin_limits limits = {};
    limits.size = sizeof limits;
    DeviceOp op(decl, operands, attributes, limits);
    if (!op.bound()) return expected;
    std::vector<HostTensor> zeros = operands;
    for (HostTensor& t : zeros) std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0});
    op.load(zeros);
    const std::int64_t nodes = op.record();
    EXPECT_GE(nodes, 1) << what;
    op.replay();  // once with other contents, so that the next replay is not the first
    op.load(operands);
    op.replay();
    const OpOutcome replayed{op.results(), op.operands()};
    op.load(operands);
    op.enqueue();
    const OpOutcome eager{op.results(), op.operands()};
    for (std::size_t i = 0; i < eager.results.size(); ++i) {
      EXPECT_EQ(eager.results[i].bytes, replayed.results[i].bytes) << what << ": eager and replayed result " << i;
      expect_close(eager.results[i], expected.results[i].values(), allowed, what);
    }
    for (std::size_t i = 0; i < operands.size(); ++i) {
      EXPECT_EQ(eager.operands[i].bytes, replayed.operands[i].bytes) << what << ": operand " << i;
      if (!decl.operands[i].mutated) {
        EXPECT_EQ(eager.operands[i].bytes, operands[i].bytes) << what << " changed operand " << i;
      } else {
        expect_close(eager.operands[i], expected.operands[i].values(), allowed, what);
      }
    }
    return eager;
  }
};

std::string named(const char* op, DType dtype, std::int64_t m, std::int64_t n) {
  return std::string(op) + " " + std::string(ir::dtype_name(dtype)) + " " + std::to_string(m) + " x " +
         std::to_string(n);
}

TEST_F(OpenClOperators, Norms) {
  for (const DType dtype : kTypes)
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1, 64}, {7, 256}, {3, 100}, {2, 1}}) {
      const HostTensor x = random_tensor(dtype, {m, n}, 1, -3, 3);
      const HostTensor residual = random_tensor(dtype, {m, n}, 2, -3, 3);
      const HostTensor w = random_tensor(dtype, {n}, 3);
      for (const char* form : {"", "round_once", "unit_offset"}) {
        ir::Attributes attributes{{"eps", 1e-5}};
        if (*form != 0) attributes.emplace_back(form, true);
        expect_same(tessera::kRmsNorm, tessera::kRmsNormCpu, {x, w}, attributes, tolerance(dtype, 2),
                    named("rms_norm", dtype, m, n) + form);
      }
      expect_same(tessera::kAddRmsNorm, tessera::kAddRmsNormCpu, {x, residual, w}, {{"eps", 1e-5}}, tolerance(dtype, 2),
                  named("add_rms_norm", dtype, m, n));
    }
  expect_same(tessera::kHeadNorm, tessera::kHeadNormCpu,
              {random_tensor(DType::kFloat32, {5, 96}, 1), random_tensor(DType::kFloat32, {32}, 2)}, {{"eps", 1e-6}},
              tolerance(DType::kFloat32, 2), "head_norm");
}

TEST_F(OpenClOperators, Activations) {
  const Tolerance f32{2e-6, 4e-6};
  for (const DType dtype : kTypes) {
    const Tolerance allowed = dtype == DType::kFloat32 ? f32 : tolerance(dtype, 2);
    const HostTensor x = random_tensor(dtype, {5, 142}, 4, -8, 8);
    expect_same(tessera::kSiluMul, tessera::kSiluMulCpu, {x}, {}, allowed, named("silu_mul", dtype, 5, 71));
    for (const bool tanh : {true, false}) {
      expect_same(tessera::kGeluMul, tessera::kGeluMulCpu, {x}, {{"tanh", tanh}}, allowed, "gelu_mul");
      expect_same(tessera::kGelu, tessera::kGeluCpu, {x}, {{"tanh", tanh}}, allowed, "gelu");
    }
    expect_same(tessera::kSilu, tessera::kSiluCpu, {x}, {}, allowed, "silu");
    expect_same(tessera::kSoftcap, tessera::kSoftcapCpu, {x}, {{"cap", 3.0}}, allowed, "softcap");
  }
}

TEST_F(OpenClOperators, Arithmetic) {
  for (const DType dtype : kTypes) {
    const HostTensor a = random_tensor(dtype, {6, 35}, 5);
    for (const std::vector<std::int64_t>& dims : {std::vector<std::int64_t>{6, 35}, {35}, {1}}) {
      const HostTensor b = random_tensor(dtype, dims, 6);
      expect_same(tessera::kAdd, tessera::kAddCpu, {a, b}, {}, {}, "add");
      expect_same(tessera::kMul, tessera::kMulCpu, {a, b}, {}, {}, "mul");
    }
    expect_same(tessera::kScale, tessera::kScaleCpu, {a}, {{"factor", 1.7}}, {}, "scale");
    expect_same(tessera::kCopy, tessera::kCopyCpu, {a}, {}, {}, "copy");
    for (const char* to : {"f32", "f16", "bf16"})
      expect_same(tessera::kCast, tessera::kCastCpu, {a}, {{"dtype", std::string(to)}}, {}, "cast");
    expect_same(tessera::kSplit, tessera::kSplitCpu, {a}, {{"sizes", std::vector<std::int64_t>{3, 31, 1}}}, {},
                "split");
  }
}

TEST_F(OpenClOperators, RowsByNumber) {
  const HostTensor ids = int_tensor({7}, {0, 4, 9, -1, 10, 3, -2});
  const HostTensor given_rows = int_tensor({7}, {-1, 2, -1, 0, -1, 5, -1});
  for (const DType dtype : kTypes) {
    const HostTensor table = random_tensor(dtype, {10, 33}, 7);
    const HostTensor given = random_tensor(dtype, {4, 66}, 8);
    expect_same(tessera::kGatherRows, tessera::kGatherRowsCpu, {table, ids}, {}, {}, "gather_rows");
    expect_same(tessera::kEmbedding, tessera::kEmbeddingCpu, {ids, table}, {{"scale", 5.1}}, {}, "embedding");
    expect_same(tessera::kEmbedding, tessera::kEmbeddingCpu, {ids, table, given_rows, given}, {}, {},
                "embedding, some given");
  }
  expect_same(tessera::kResolveIds, tessera::kResolveIdsCpu,
              {int_tensor({5}, {5, 6, 7, 8, 100}), int_tensor({5}, {-1, 2, 3, -1, -1}), int_tensor({3}, {40, 41, 42})},
              {{"replaced", std::vector<std::int64_t>{8, 100}}, {"by", std::int64_t{1}}}, {}, "resolve_ids");
}

// The kernel does not support a slice of a table that several ranks share. It would return wrong rows, and the sum over
// the ranks would contain the embeddings that a prompt gives several times.
TEST_F(OpenClOperators, ASliceOfATableIsRefused) {
  const std::vector<HostTensor> operands{int_tensor({2}, {0, 4}), random_tensor(DType::kFloat32, {5, 8}, 7)};
  for (const std::int64_t first : {0, 5})
    EXPECT_EQ(
        DeviceOp::refusal(tessera::kEmbedding, operands, {{"first_row", first}, {"table_rows", std::int64_t{10}}}),
        "rows from " + std::to_string(first) + " of a table of 10; accepted is a whole table");
  expect_same(tessera::kEmbedding, tessera::kEmbeddingCpu, operands,
              {{"first_row", std::int64_t{0}}, {"table_rows", std::int64_t{5}}}, {}, "embedding, a whole table");
}

TEST_F(OpenClOperators, Linear) {
  const std::int64_t shapes[][3] = {{1, 64, 64},  {3, 70, 100},  {8, 9, 8}, {9, 65, 17},
                                    {33, 64, 48}, {40, 130, 72}, {1, 5, 3}, {64, 7, 259}};
  std::uint32_t seed = 20;
  for (const DType dtype : kTypes)
    for (const auto& [m, n, k] : shapes)
      for (const int extras : {0, 1, 2, 3}) {
        if (extras != 0 && extras != 3 && dtype != DType::kFloat32) continue;
        std::vector<HostTensor> operands{random_tensor(dtype, {m, k}, ++seed), random_tensor(dtype, {n, k}, ++seed)};
        if (extras & 1) operands.push_back(random_tensor(dtype, {n}, ++seed));
        if (extras & 2) operands.push_back(random_tensor(dtype, {m, n}, ++seed));
        const ir::Attributes attributes{{"bias", (extras & 1) != 0}, {"residual", (extras & 2) != 0}};
        Tolerance allowed = tolerance(dtype, 2);
        allowed.absolute = std::max(allowed.absolute, 1e-5);
        expect_same(tessera::kLinear, tessera::kLinearCpu, operands, attributes, allowed,
                    named("linear", dtype, m, n) + " x " + std::to_string(k));
      }
}

// Catches: a row with bits that depend on the number of other rows, which a deterministic forward must not have.
TEST_F(OpenClOperators, DeterministicLinearGivesARowTheSameBits) {
  const HostTensor x = random_tensor(DType::kFloat32, {40, 100}, 1);
  const HostTensor w = random_tensor(DType::kFloat32, {70, 100}, 2);
  tessera_plugin_limits limits = {};
  limits.size = sizeof limits;
  limits.deterministic = 1;
  const auto run = [&](std::int64_t m) {
    HostTensor part{DType::kFloat32, {m, 100}, {x.bytes.begin(), x.bytes.begin() + m * 400}};
    DeviceOp op(tessera::kLinear, {part, w}, {}, limits);
    op.enqueue();
    return op.results()[0];
  };
  const HostTensor whole = run(40);
  expect_close(whole, tessera::testing::run_op(tessera::kLinear, tessera::kLinearCpu, {x, w}).results[0].values(),
               {1e-5, 1e-5}, "linear, deterministic");
  for (const std::int64_t m : {1, 5, 33}) {
    const std::vector<std::byte> some = run(m).bytes;
    EXPECT_TRUE(std::equal(some.begin(), some.end(), whole.bytes.begin())) << m;
  }
}

TEST_F(OpenClOperators, Rotation) {
  const HostTensor inv_freq = random_tensor(DType::kFloat32, {16}, 9, 0, 1);
  const HostTensor positions = int_tensor({4}, {0, 1, 77, 130000});
  expect_same(tessera::kRotaryTable, tessera::kRotaryTableCpu, {positions, inv_freq}, {{"scale", 1.5}}, {1e-6, 1e-6},
              "rotary_table");
  expect_same(tessera::kRotaryTable, tessera::kRotaryTableCpu, {positions, inv_freq},
              {{"scale", 1.5}, {"growth", 0.1}, {"growth_length", std::int64_t{16}}}, {1e-6, 1e-6},
              "rotary_table that grows");
  const HostTensor three = int_tensor({3, 4}, {0, 1, 2, 3, 9, 8, 7, 6, 50, 60, 70, 80});
  for (const bool interleaved : {false, true})
    expect_same(tessera::kRotaryTable, tessera::kRotaryTableCpu, {three, inv_freq},
                {{"sections", std::vector<std::int64_t>{6, 5, 5}}, {"interleaved", interleaved}}, {1e-6, 1e-6},
                "rotary_table, sections");
  const HostTensor table = random_tensor(DType::kFloat32, {4, 32}, 10);
  for (const DType dtype : kTypes)
    for (const bool interleaved : {false, true})
      expect_same(tessera::kRotary, tessera::kRotaryCpu, {random_tensor(dtype, {4, 120}, 11), table},
                  {{"head_dim", std::int64_t{40}}, {"interleaved", interleaved}}, tolerance(dtype), "rotary");
}

TEST_F(OpenClOperators, StoresToTheCache) {
  const HostTensor slots = int_tensor({5}, {0, 17, 40, -1, 48});  // two slots are outside the cache
  const HostTensor table = random_tensor(DType::kFloat32, {5, 24}, 12);
  const std::pair<DType, DType> pairs[] = {{DType::kFloat32, DType::kFloat32},
                                           {DType::kFloat32, DType::kBFloat16},
                                           {DType::kFloat16, DType::kFloat16},
                                           {DType::kBFloat16, DType::kBFloat16}};
  for (const auto& [dtype, cache_dtype] : pairs) {
    const HostTensor cache = filled_tensor(cache_dtype, {3, 16, 2, 32}, 7);
    const HostTensor k = random_tensor(dtype, {5, 64}, 13);
    const HostTensor v = random_tensor(dtype, {5, 64}, 14);
    Tolerance allowed = tolerance(cache_dtype == DType::kFloat32 ? dtype : cache_dtype, 2);
    allowed.absolute = std::max(allowed.absolute, 1e-6);
    expect_same(tessera::kKvStore, tessera::kKvStoreCpu, {k, v, slots, cache, cache}, {}, {}, "kv_store");
    const HostTensor qkv = random_tensor(dtype, {5, 8 * 32}, 15, -2, 2);
    const HostTensor qw = random_tensor(dtype, {32}, 16);
    const HostTensor kw = random_tensor(dtype, {32}, 17);
    expect_same(tessera::kQkvRopeStore, tessera::kQkvRopeStoreCpu, {qkv, table, slots, cache, cache},
                {{"heads", std::int64_t{4}}}, allowed, "qkv_rope_store");
    for (const bool unit_offset : {false, true})
      expect_same(tessera::kQkvRopeStore, tessera::kQkvRopeStoreCpu, {qkv, table, slots, cache, cache, qw, kw},
                  {{"heads", std::int64_t{4}}, {"qk_norm", true}, {"eps", 1e-6}, {"unit_offset", unit_offset}},
                  tolerance(dtype == DType::kFloat32 ? cache_dtype : DType::kBFloat16, 4), "qkv_rope_store, norms");
  }
}

}  // namespace
}  // namespace opencl_test
