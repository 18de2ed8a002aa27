// Catches: a misread field of a block; a wrong entry of a code book; arithmetic that rounds differently from GGUF's
// other readers.
#include "tessera/ops/quantised/blocks/dequantise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

// A record of tests/data/blocks/blocks.bin.
struct Record {
  BlockType type;
  std::int64_t count;
  std::vector<std::uint8_t> blocks;
  std::vector<float> numbers;
};

std::vector<Record> read_records() {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/tests/data/blocks/blocks.bin", std::ios::binary);
  std::vector<Record> records;
  std::uint32_t head[2];
  while (file.read(reinterpret_cast<char*>(head), sizeof(head))) {
    Record r{.type = static_cast<BlockType>(head[0]), .count = head[1], .blocks = {}, .numbers = {}};
    const BlockTypeInfo& size = block_type_info(r.type);
    r.blocks.resize(static_cast<std::size_t>(r.count * size.bytes));
    r.numbers.resize(static_cast<std::size_t>(r.count * size.elements));
    file.read(reinterpret_cast<char*>(r.blocks.data()), static_cast<std::streamsize>(r.blocks.size()));
    file.read(reinterpret_cast<char*>(r.numbers.data()), static_cast<std::streamsize>(r.numbers.size() * 4));
    records.push_back(std::move(r));
  }
  return records;
}

TEST(Dequantise, EveryTypeHasTheNumbersOfGgufPy) {
  const std::vector<Record> records = read_records();
  EXPECT_EQ(records.size(), 21u);
  for (const Record& r : records) {
    ASSERT_TRUE(can_dequantise(r.type)) << block_type_info(r.type).name;
    std::vector<float> numbers(r.numbers.size() + 1, 7.0F);
    dequantise(r.type, r.blocks.data(), r.count, numbers.data());
    EXPECT_EQ(numbers.back(), 7.0F) << "a number behind the last one was written";
    for (std::size_t i = 0; i < r.numbers.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(numbers[i]), std::bit_cast<std::uint32_t>(r.numbers[i]))
          << block_type_info(r.type).name << ", number " << i << ": " << numbers[i] << " instead of " << r.numbers[i];
  }
}

}  // namespace
}  // namespace tessera
