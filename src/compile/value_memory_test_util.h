// Memory for tests that run programs. Every value of a program has separate memory, except that a view shares the
// memory of another value.
//
//   ValueMemory values(device, stream, program, bucket);
//   values.write("x", {1, 2, 3});
//   BoundProgram bound = *program.bind(values.target(bucket, context));
//   EXPECT_THAT(values.read("y"), ElementsAre(2, 4, 6));
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/compile/program.h"
#include "tessera/device/device.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ir/text.h"

namespace tessera::testing {

using Bytes = std::vector<std::byte>;

inline Bytes to_bytes(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Returns the bytes of random floats, uniform in [-1, 1), if the type is float32. Returns zeros for any other type.
inline Bytes random_bytes(ir::DType dtype, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes content(bytes, std::byte{0});
  if (dtype != ir::DType::kFloat32) return content;
  for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
    const float value = static_cast<float>(static_cast<std::int64_t>(random() % 4096) - 2048) / 2048.0F;
    std::memcpy(content.data() + i, &value, 4);
  }
  return content;
}

inline ir::Graph parse(std::string_view text, const ir::OpTable& ops) {
  Result<ir::Graph> graph = ir::parse_graph(text, &ops);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string() << "\n" << text;
  return graph.ok() ? *std::move(graph) : ir::Graph{};
}

class ValueMemory {
 public:
  ValueMemory(Device& device, Stream& stream, const Program& program, const ir::Bucket& bucket)
      : device_(device), stream_(stream), program_(program), addresses_(program.values.size()) {
    for (std::size_t i = 0; i < program.values.size(); ++i) {
      Result<std::int64_t> bytes = ir::size_bytes(program.values[i].type, bucket);
      EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
      bytes_.push_back(bytes.ok() ? static_cast<std::size_t>(*bytes) : 0);
      Result<std::unique_ptr<Allocation>> memory = device.allocate(bytes_[i], program.values[i].name);
      EXPECT_TRUE(memory.ok()) << memory.status().to_string();
      addresses_[i] = (*memory)->data();
      EXPECT_TRUE(stream.fill(addresses_[i], 0xff, bytes_[i]).ok());
      memory_.push_back(*std::move(memory));
      if (const ir::ValueId viewed = program.values[i].view_of; viewed != kNoValue)
        addresses_[i] = addresses_[viewed.index()];
    }
  }

  const std::vector<DeviceAddress>& addresses() const { return addresses_; }
  BindTarget target(const ir::Bucket& bucket, const ForwardContext& context, DeviceAddress workspace = {}) const {
    return {.bucket = bucket, .addresses = addresses_, .workspace = workspace, .device = device_, .context = context};
  }

  void write_bytes(std::string_view name, const Bytes& bytes) {
    const std::size_t i = index(name);
    ASSERT_LE(bytes_[i], bytes.size()) << name;
    EXPECT_TRUE(stream_.upload(addresses_[i], bytes.data(), bytes_[i]).ok());
  }
  void write(std::string_view name, const std::vector<float>& values) { write_bytes(name, to_bytes(values)); }
  // Fills every result with NaN, like the constructor.
  void poison_results() {
    for (std::size_t i = 0; i < program_.values.size(); ++i) {
      if (program_.values[i].kind != ir::ValueKind::kResult) continue;
      EXPECT_TRUE(stream_.fill(addresses_[i], 0xff, bytes_[i]).ok());
    }
  }
  Bytes read_bytes(std::size_t i) {
    Bytes bytes(bytes_[i]);
    EXPECT_TRUE(stream_.download(bytes.data(), addresses_[i], bytes.size()).ok());
    EXPECT_TRUE(stream_.synchronize().ok());
    return bytes;
  }
  std::vector<float> read(std::string_view name) {
    const Bytes bytes = read_bytes(index(name));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  std::size_t index(std::string_view name) const {
    for (std::size_t i = 0; i < program_.values.size(); ++i)
      if (program_.values[i].name == name) return i;
    ADD_FAILURE() << "no value %" << name;
    return 0;
  }

  Device& device_;
  Stream& stream_;
  const Program& program_;
  std::vector<DeviceAddress> addresses_;
  std::vector<std::size_t> bytes_;
  std::vector<std::unique_ptr<Allocation>> memory_;
};

inline ir::Bucket tokens(std::int64_t count) {
  ir::Bucket bucket;
  bucket[ir::Symbol::kTokens] = count;
  return bucket;
}

}  // namespace tessera::testing
