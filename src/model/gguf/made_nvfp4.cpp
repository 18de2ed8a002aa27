#include "tessera/model/gguf/made_nvfp4.h"

#include <cstddef>
#include <cstdint>

#include "tessera/ops/quantised/quantised_matrix.h"

namespace tessera {
namespace {

// A block has the scales of its groups, then the values of each group. The lower halves of a group's bytes are its
// first values, and the upper halves are the others.
constexpr std::int64_t kGroup = kNvfp4Group;
constexpr std::int64_t kGroups = 4;
constexpr std::int64_t kGroupBytes = kGroup / 2;
constexpr std::int64_t kBlockBytes = kGroups * (1 + kGroupBytes);

// A group whose scale is 0 or no number has only zeros. GGUF's scales have no sign, and 0x7f, in E4M3 NaN, stands for
// 0.
bool is_zero(const std::byte* block, std::int64_t group) {
  constexpr std::byte kNoSign{0x7f};
  const std::byte scale = block[group] & kNoSign;
  return scale == std::byte{0} || scale == kNoSign;
}

class Nvfp4Part : public TensorElements {
 public:
  Nvfp4Part(const StoredBlocks& matrix, const StoredOrder& rows, std::int64_t of_group)
      : matrix_(matrix), rows_(rows), of_group_(of_group), of_row_(matrix.cols() / kGroup * of_group) {}

  void read(std::int64_t first, std::int64_t count, std::byte* to) const final {
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t group = i % of_row_ / of_group_;
      const std::byte* block = matrix_.row(rows_.stored(i / of_row_)) + group / kGroups * kBlockBytes;
      *to++ = element(block, group % kGroups, i % of_group_);
    }
  }

 private:
  // Returns element `index` of a group's part.
  virtual std::byte element(const std::byte* block, std::int64_t group, std::int64_t index) const = 0;

  StoredBlocks matrix_;
  StoredOrder rows_;
  std::int64_t of_group_;  // elements of a group
  std::int64_t of_row_;
};

class Nvfp4Values final : public Nvfp4Part {
 public:
  Nvfp4Values(const StoredBlocks& matrix, const StoredOrder& rows) : Nvfp4Part(matrix, rows, kGroupBytes) {}

 private:
  std::byte element(const std::byte* block, std::int64_t group, std::int64_t index) const override {
    if (is_zero(block, group)) return std::byte{0};
    const std::byte* values = block + kGroups + group * kGroupBytes;
    const std::byte* two = values + 2 * index % kGroupBytes;
    if (2 * index < kGroupBytes) return (two[0] & std::byte{15}) | (two[1] << 4);
    return (two[0] >> 4) | (two[1] & std::byte{0xf0});
  }
};

class Nvfp4Scales final : public Nvfp4Part {
 public:
  Nvfp4Scales(const StoredBlocks& matrix, const StoredOrder& rows) : Nvfp4Part(matrix, rows, 1) {}

 private:
  // Checkpoints have no scale of 0. A group of zeros gets the least scale instead.
  std::byte element(const std::byte* block, std::int64_t group, std::int64_t /*index*/) const override {
    constexpr std::byte kLeast{1};
    constexpr std::byte kNoSign{0x7f};
    return is_zero(block, group) ? kLeast : block[group] & kNoSign;
  }
};

}  // namespace

std::shared_ptr<const TensorElements> make_nvfp4_values(const StoredBlocks& matrix, const StoredOrder& rows) {
  return std::make_shared<const Nvfp4Values>(matrix, rows);
}

std::shared_ptr<const TensorElements> make_nvfp4_scales(const StoredBlocks& matrix, const StoredOrder& rows) {
  return std::make_shared<const Nvfp4Scales>(matrix, rows);
}

}  // namespace tessera
