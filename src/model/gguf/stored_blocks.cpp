#include "tessera/model/gguf/stored_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/model/weights/stored_codec.h"
#include "tessera/ops/quantised/blocks/dequantise.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostElements = 256;  // elements of the largest block type

template <StoredDtype kType>
void decode(const std::byte* from, std::int64_t count, float* to) {
  typename Codec<kType>::Bits bits;
  for (std::int64_t i = 0; i < count; ++i, from += sizeof bits) {
    std::memcpy(&bits, from, sizeof bits);
    to[i] = Codec<kType>::decode(bits);
  }
}

void read_blocks(BlockType type, const std::byte* from, std::int64_t count, float* to) {
  switch (type) {
    case BlockType::kF32: return decode<StoredDtype::kF32>(from, count, to);
    case BlockType::kF16: return decode<StoredDtype::kF16>(from, count, to);
    case BlockType::kBF16: return decode<StoredDtype::kBF16>(from, count, to);
    default: return dequantise(type, reinterpret_cast<const std::uint8_t*>(from), count, to);
  }
}

}  // namespace

StoredBlocks::StoredBlocks(BlockType type, const std::byte* data, std::int64_t cols, float factor)
    : type_(type),
      data_(data),
      cols_(cols),
      block_elements_(block_type_info(type).elements),
      block_bytes_(block_type_info(type).bytes),
      row_bytes_(cols / block_elements_ * block_bytes_),
      factor_(factor) {}

bool StoredBlocks::is_readable(BlockType type) {
  return type == BlockType::kF32 || type == BlockType::kF16 || type == BlockType::kBF16 || can_dequantise(type);
}

void StoredBlocks::read(std::int64_t row_index, std::int64_t col, std::int64_t count, float* to) const {
  const std::byte* const begin = row(row_index);
  while (count > 0) {
    const std::int64_t block = col / block_elements_;
    const std::int64_t within = col % block_elements_;
    const std::byte* const from = begin + block * block_bytes_;
    std::int64_t done = 0;
    if (within == 0 && count >= block_elements_) {
      done = count / block_elements_ * block_elements_;
      read_blocks(type_, from, count / block_elements_, to);
    } else {
      std::array<float, kMostElements> whole;
      read_blocks(type_, from, 1, whole.data());
      done = std::min(count, block_elements_ - within);
      std::copy_n(whole.data() + within, done, to);
    }
    if (factor_ != 1)
      for (std::int64_t i = 0; i < done; ++i) to[i] *= factor_;
    col += done;
    count -= done;
    to += done;
  }
}

}  // namespace tessera
