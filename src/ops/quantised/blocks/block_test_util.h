// Makes random matrices of GGUF's blocks for tests, and computes their numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/quantised/blocks/block_input.h"
#include "tessera/ops/quantised/blocks/dequantise.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"
#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera::testing {

// Returns every type that operators support.
inline std::vector<BlockType> block_types() {
  std::vector<BlockType> types;
  for (const BlockTypeInfo& info : kBlockTypes)
    if (can_dequantise(info.type)) types.push_back(info.type);
  return types;
}

// Returns the byte offsets of the float16 numbers in a block.
inline std::vector<int> halves_of(BlockType type) {
  switch (type) {
    case BlockType::kQ4_1: return {0, 2};
    case BlockType::kQ5_1: return {0, 2};
    case BlockType::kQ2_K: return {80, 82};
    case BlockType::kQ3_K: return {108};
    case BlockType::kQ4_K: return {0, 2};
    case BlockType::kQ5_K: return {0, 2};
    case BlockType::kQ6_K: return {208};
    case BlockType::kIQ1_M: return {};
    case BlockType::kMXFP4: return {};
    case BlockType::kNVFP4: return {};
    default: return {0};
  }
}

// Returns rows of random blocks. Float16 scales are small numbers of either sign. The scales of MXFP4 and NVFP4 are
// small and positive.
inline std::vector<std::uint8_t> random_blocks(BlockType type, std::int64_t rows, std::int64_t cols,
                                               std::uint32_t seed) {
  const BlockTypeInfo& info = block_type_info(type);
  std::mt19937 generator(seed);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(rows * (cols / info.elements) * info.bytes));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(generator());
  for (std::size_t block = 0; block < bytes.size(); block += static_cast<std::size_t>(info.bytes)) {
    std::uint8_t* const b = bytes.data() + block;
    for (const int at : halves_of(type)) b[at + 1] = static_cast<std::uint8_t>((b[at + 1] & 0x83) | 0x18);
    if (type == BlockType::kIQ1_M) b[55] = static_cast<std::uint8_t>((b[55] & 0x8f) | 0x10);
    if (type == BlockType::kMXFP4) b[0] = static_cast<std::uint8_t>(115 + b[0] % 8);
    for (int i = 0; type == BlockType::kNVFP4 && i < 4; ++i) b[i] = static_cast<std::uint8_t>(b[i] & 0x37);
  }
  return bytes;
}

// A matrix as the operand of an operator, and its numbers.
struct BlockCase {
  HostTensor operand;           // u8[rows, bytes of a row], packed
  std::vector<double> numbers;  // [rows, cols]
};

inline BlockCase random_block_case(BlockType type, std::int64_t rows, std::int64_t cols, std::uint32_t seed) {
  const BlockTypeInfo& info = block_type_info(type);
  const std::vector<std::uint8_t> plain = random_blocks(type, rows, cols, seed);
  BlockCase c{.operand = poisoned_tensor(ir::DType::kUInt8, {rows, cols / info.elements * info.bytes}), .numbers = {}};
  pack_rows(type, plain.data(), rows, cols, reinterpret_cast<std::uint8_t*>(c.operand.bytes.data()));
  std::vector<float> numbers(static_cast<std::size_t>(rows * cols));
  dequantise(type, plain.data(), rows * cols / info.elements, numbers.data());
  c.numbers.assign(numbers.begin(), numbers.end());
  return c;
}

// Returns x [rows, cols] as the integer kernels multiply it: every 32 columns are rounded to eight bits with one scale.
inline std::vector<double> rounded_to_eight_bits(const HostTensor& x) {
  const std::int64_t rows = x.dims[0];
  const std::int64_t cols = x.dims[1];
  std::vector<blocks::Input> inputs(blocks::input_bytes(rows, cols) / sizeof(blocks::Input));
  std::vector<double> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::size_t at = static_cast<std::size_t>(r * cols) * ir::dtype_size(x.dtype);
    blocks::make_inputs(x.bytes.data() + at, x.dtype, cols, rows, r, inputs.data());
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t part = c / 32;
      const blocks::Input& in = inputs[static_cast<std::size_t>(
          (part / blocks::kChunkParts * rows + r) * blocks::kChunkParts + part % blocks::kChunkParts)];
      values.push_back(in.values[c % 32] * static_cast<double>(in.scale));
    }
  }
  return values;
}

// A dtype of x, and a value of the attribute `inputs`, with which operators are tested.
struct BlockInputs {
  ir::DType dtype;
  const char* inputs;  // the value of the attribute `inputs`
};
inline constexpr BlockInputs kBlockInputs[] = {{ir::DType::kFloat32, "plain"},
                                               {ir::DType::kFloat32, "block"},
                                               {ir::DType::kBFloat16, "plain"},
                                               {ir::DType::kBFloat16, "block"},
                                               {ir::DType::kFloat16, "block"}};
inline std::string test_name_of(const BlockInputs& in) { return std::string(ir::dtype_name(in.dtype)) + in.inputs; }

// Returns whether the CPU rounds x and multiplies integers.
inline bool rounds_inputs(BlockType type, const BlockInputs& in) {
  return packed_layout(type) != nullptr && std::string_view(in.inputs) == "block";
}

inline QuantisedFormat format_of(BlockType type) {
  return {.values = QuantisedFormat::Values::kBlocks, .blocks = type};
}

inline std::string test_name_of(BlockType type) { return std::string(block_type_info(type).name); }

// Returns whether the device under test has no kernels for blocks. If so, expects that the operator is refused for this
// reason.
inline bool is_refused(const ir::OpDecl& decl, const KernelDef& kernel, const std::vector<HostTensor>& operands,
                       const ir::Attributes& attributes) {
  if (!on_cuda()) return false;
  const Status refused = try_run_op(decl, kernel, operands, attributes).status();
  EXPECT_NE(refused.message().find("CUDA has no kernels for values"), std::string::npos) << refused.message();
  return true;
}

}  // namespace tessera::testing
