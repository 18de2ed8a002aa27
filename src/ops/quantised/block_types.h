// The types in which a GGUF file stores numbers: plain ones, and blocks of integers that share scales.
//
// A row of a tensor consists of whole blocks. The blocks of a row, and the rows of a tensor, follow one another without
// gaps. All numbers in a block are little-endian. The code in blocks/ defines what the bytes of a block mean.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

// The enumerators' values are the numbers in GGUF files. The missing numbers belong to types that the format has
// abandoned.
enum class BlockType : std::uint8_t {  // NOLINTBEGIN(readability-identifier-naming): the format's own names
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
};  // NOLINTEND(readability-identifier-naming)

struct BlockTypeInfo {
  BlockType type;
  std::string_view name;  // the name in the format's tools, such as "Q4_K"
  std::int64_t elements;  // number of numbers in a block; 1 for plain types
  std::int64_t bytes;     // number of bytes of a block
};

inline constexpr std::array kBlockTypes = {
    BlockTypeInfo{BlockType::kF32, "F32", 1, 4},
    BlockTypeInfo{BlockType::kF16, "F16", 1, 2},
    BlockTypeInfo{BlockType::kQ4_0, "Q4_0", 32, 18},
    BlockTypeInfo{BlockType::kQ4_1, "Q4_1", 32, 20},
    BlockTypeInfo{BlockType::kQ5_0, "Q5_0", 32, 22},
    BlockTypeInfo{BlockType::kQ5_1, "Q5_1", 32, 24},
    BlockTypeInfo{BlockType::kQ8_0, "Q8_0", 32, 34},
    BlockTypeInfo{BlockType::kQ8_1, "Q8_1", 32, 36},
    BlockTypeInfo{BlockType::kQ2_K, "Q2_K", 256, 84},
    BlockTypeInfo{BlockType::kQ3_K, "Q3_K", 256, 110},
    BlockTypeInfo{BlockType::kQ4_K, "Q4_K", 256, 144},
    BlockTypeInfo{BlockType::kQ5_K, "Q5_K", 256, 176},
    BlockTypeInfo{BlockType::kQ6_K, "Q6_K", 256, 210},
    BlockTypeInfo{BlockType::kQ8_K, "Q8_K", 256, 292},
    BlockTypeInfo{BlockType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    BlockTypeInfo{BlockType::kIQ2_XS, "IQ2_XS", 256, 74},
    BlockTypeInfo{BlockType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    BlockTypeInfo{BlockType::kIQ1_S, "IQ1_S", 256, 50},
    BlockTypeInfo{BlockType::kIQ4_NL, "IQ4_NL", 32, 18},
    BlockTypeInfo{BlockType::kIQ3_S, "IQ3_S", 256, 110},
    BlockTypeInfo{BlockType::kIQ2_S, "IQ2_S", 256, 82},
    BlockTypeInfo{BlockType::kIQ4_XS, "IQ4_XS", 256, 136},
    BlockTypeInfo{BlockType::kI8, "I8", 1, 1},
    BlockTypeInfo{BlockType::kI16, "I16", 1, 2},
    BlockTypeInfo{BlockType::kI32, "I32", 1, 4},
    BlockTypeInfo{BlockType::kI64, "I64", 1, 8},
    BlockTypeInfo{BlockType::kF64, "F64", 1, 8},
    BlockTypeInfo{BlockType::kIQ1_M, "IQ1_M", 256, 56},
    BlockTypeInfo{BlockType::kBF16, "BF16", 1, 2},
    BlockTypeInfo{BlockType::kTQ1_0, "TQ1_0", 256, 54},
    BlockTypeInfo{BlockType::kTQ2_0, "TQ2_0", 256, 66},
    BlockTypeInfo{BlockType::kMXFP4, "MXFP4", 32, 17},
    BlockTypeInfo{BlockType::kNVFP4, "NVFP4", 64, 36},
    BlockTypeInfo{BlockType::kQ1_0, "Q1_0", 128, 18},
};

// Returns the entry of the type with the number `id`, or null if there is none.
constexpr const BlockTypeInfo* find_block_type(std::uint32_t id) {
  for (const BlockTypeInfo& info : kBlockTypes)
    if (static_cast<std::uint32_t>(info.type) == id) return &info;
  return nullptr;
}

// Returns the entry of the type called `name` ("Q4_K"), or null if there is none.
constexpr const BlockTypeInfo* find_block_type(std::string_view name) {
  for (const BlockTypeInfo& info : kBlockTypes)
    if (info.name == name) return &info;
  return nullptr;
}

constexpr const BlockTypeInfo& block_type_info(BlockType type) {
  return *find_block_type(static_cast<std::uint32_t>(type));
}

}  // namespace tessera
