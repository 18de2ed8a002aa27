// Makes random graphs and runs them on a CPU. The graphs contain many copies, views, duplicated nodes, writes, and
// sequences of nodes that a pass fuses into one operator (fuse_native_forms.h).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/ir/builder.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera::testing {

using ir::DType;
using ir::ValueId;

inline constexpr std::int64_t kRows = 3;
inline constexpr std::int64_t kEdits = 2 * kRows;

// A random graph with values of type f32[R, 8]. Views give some values further names, and the operator logit_edits
// overwrites some values.
class RandomGraph {
 public:
  explicit RandomGraph(std::uint64_t seed) : random_(seed), b_("random", built_in_ops()) {}

  Result<ir::Graph> make(int nodes) {
    const ir::Type rows{DType::kFloat32, {ir::Symbol::kRows, 8}};
    add(b_.input("x", rows), false);
    add(b_.input("y", rows), false);
    add(b_.state("s", rows), true);
    row_ = b_.weight("w", {DType::kFloat32, {8}});
    square_ = b_.weight("m", {DType::kFloat32, {8, 8}});
    wide_ = b_.weight("m2", {DType::kFloat32, {16, 8}});
    const auto integers = [&](const char* name, ir::Dim size) { return b_.input(name, {DType::kInt32, {size}}); };
    edits_ = {integers("first", ir::Symbol::kRows),
              integers("count", ir::Symbol::kRows),
              integers("ids", kEdits),
              b_.input("penalties", {DType::kFloat32, {kEdits}}),
              b_.input("offsets", {DType::kFloat32, {kEdits}}),
              integers("mask", ir::Symbol::kRows),
              b_.input("masks", {DType::kInt32, {1, 1}})};
    add(b_.op("add", {pick().value, pick().value}), true);
    for (int i = 0; i < nodes; ++i) step();
    for (std::size_t i = 1 + below(3); i > 0; --i) b_.output(pool_[3 + below(pool_.size() - 3)].value);
    return b_.finish();
  }

 private:
  struct Known {
    ValueId value;
    bool writable;  // false if the value shares the memory of an input
  };
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  // Chooses a random value. At least half of the time it is one of the last three values, so that chains of operators
  // arise.
  Known pick() { return pool_[pool_.size() - 1 - below(below(2) == 0 ? 3 : pool_.size())]; }
  void add(ValueId value, bool writable) { pool_.push_back({value, writable}); }

  void step() {
    const Known x = pick();
    switch (below(13)) {
      case 0: return add(b_.op("add", {x.value, pick().value}), true);
      case 1: return add(b_.op("add", {pick().value, row_}), true);
      case 2: return add(b_.op("silu", {x.value}), true);
      case 3: return add(b_.op("scale", {x.value}, {{"factor", std::array{1.0, 2.0, -0.5}[below(3)]}}), true);
      case 4: return add(b_.op("copy", {x.value}), true);
      case 5: return add(b_.op("cast", {x.value}), true);
      case 6: return add(b_.op("reshape", {x.value}, {{"shape", std::string("R, 8")}}), x.writable);
      case 7: {
        const ValueId pairs = b_.op("reshape", {x.value}, {{"shape", std::string("2*R, 4")}});
        return add(b_.op("reshape", {pairs}, {{"shape", std::string("R, 8")}}), x.writable);
      }
      case 8: return add(b_.op("rms_norm", {x.value, row_}, {{"eps", 1e-3}}), true);
      case 9: return add(b_.op("linear", {x.value, square_}), true);
      case 10: {
        const std::vector<ValueId> halves =
            b_.multi_op("split", {b_.op("linear", {x.value, wide_})}, {{"sizes", std::vector<std::int64_t>{8, 8}}});
        const ValueId gate = b_.op("silu", {halves[0]});
        if (below(4) == 0) write({halves[1], true});
        add(b_.op("mul", {gate, halves[1]}), true);
        if (below(4) == 0) add(gate, true);
        return;
      }
      default: return write(x);
    }
  }

  void write(const Known& x) {
    if (!x.writable) return;
    std::vector<ValueId> operands{x.value};
    operands.insert(operands.end(), edits_.begin(), edits_.end());
    b_.op("logit_edits", operands);
  }

  std::mt19937_64 random_;
  ir::GraphBuilder b_;
  std::vector<Known> pool_;
  ValueId row_, square_, wide_;
  std::vector<ValueId> edits_;
};

// Runs a graph and returns its outputs, in order, followed by its state.
class RandomGraphRunner {
 public:
  std::vector<std::vector<float>> run(const ir::Graph& graph, const Result<Program>& program) {
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    ir::Bucket bucket;
    bucket[ir::Symbol::kRows] = kRows;
    ValueMemory values(*device_, *stream_, *program, bucket);
    fill(values);
    const auto scratch = device_->allocate(*program->workspace_bytes(bucket, *device_, context_), "workspace");
    const Result<BoundProgram> bound = program->bind(values.target(bucket, context_, (*scratch)->data()));
    EXPECT_TRUE(bound.ok()) << bound.status().to_string();
    EXPECT_TRUE(bound->enqueue(*stream_).ok());
    std::vector<std::vector<float>> results;
    for (const ValueId output : graph.outputs) results.push_back(values.read(graph.value(output).name));
    results.push_back(values.read("s"));
    return results;
  }

  Device& device() { return *device_; }

 private:
  static void fill(ValueMemory& values) {
    std::uint64_t seed = 1;
    for (const char* name : {"x", "y", "s", "w", "m", "m2"})
      values.write_bytes(name, random_bytes(DType::kFloat32, 16 * 8 * sizeof(float), ++seed));
    const auto integers = [&](const char* name, const std::vector<std::int32_t>& content) {
      Bytes bytes(content.size() * sizeof(std::int32_t));
      std::memcpy(bytes.data(), content.data(), bytes.size());
      values.write_bytes(name, bytes);
    };
    integers("first", {0, 2, 4});
    integers("count", {2, 2, 2});
    integers("ids", {0, 5, 1, 7, 2, 3});
    integers("mask", {-1, -1, -1});
    integers("masks", {0});
    values.write("penalties", {1.5F, 0.5F, 2, 1.25F, 0.75F, 3});
    values.write("offsets", {0.25F, -0.5F, 1, -1, 0.5F, 2});
  }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  ForwardContext context_;
};

// Returns whether, in each output, the values of `a` and `b` differ by at most 1e-3 · max(1, the output's greatest
// absolute value in `a`).
inline bool close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    float greatest = 1;
    for (const float value : a[i]) greatest = std::max(greatest, std::abs(value));
    for (std::size_t k = 0; k < a[i].size(); ++k)
      if (!(std::abs(a[i][k] - b[i][k]) <= 1e-3F * greatest)) return false;
  }
  return true;
}

}  // namespace tessera::testing
