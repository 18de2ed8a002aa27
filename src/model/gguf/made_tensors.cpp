#include "tessera/model/gguf/made_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/ops/moe/moe_experts.h"
#include "tessera/ops/quantised/blocks/block_bytes.h"

namespace tessera {
namespace {

constexpr std::int64_t kMxfp4Bytes = kMxfp4Block / 2;

void change_numbers(NumberChange change, float* numbers, std::int64_t count) {
  if (change == NumberChange::kLessOne)
    for (std::int64_t i = 0; i < count; ++i) numbers[i] -= 1.0F;
  if (change == NumberChange::kPlusOne)
    for (std::int64_t i = 0; i < count; ++i) numbers[i] += 1.0F;
  if (change == NumberChange::kNegativeOfExponential)
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = -std::exp(numbers[i]);
  if (change == NumberChange::kLogOfNegative)
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = std::log(-numbers[i]);
}

// F32 elements in rows of `cols` elements. A subclass implements read_row(), which writes part of one row.
class RowElements : public TensorElements {
 public:
  explicit RowElements(std::int64_t cols) : cols_(cols) {}

  void read(std::int64_t first, std::int64_t count, std::byte* to) const final {
    std::vector<float> numbers;
    while (count > 0) {
      const std::int64_t col = first % cols_;
      const std::int64_t now = std::min(count, cols_ - col);
      numbers.resize(static_cast<std::size_t>(now));
      read_row(first / cols_, col, now, numbers.data());
      const auto bytes = static_cast<std::size_t>(now) * sizeof(float);
      std::memcpy(to, numbers.data(), bytes);
      to += bytes;
      first += now;
      count -= now;
    }
  }

 private:
  virtual void read_row(std::int64_t row, std::int64_t col, std::int64_t count, float* to) const = 0;
  std::int64_t cols_;
};

class ArrangedRows : public RowElements {
 public:
  ArrangedRows(JoinedRows rows, const RowArrangement& arrangement)
      : RowElements(rows.matrices[0].cols()), rows_(std::move(rows)), arrangement_(arrangement) {}

  // Permuted columns are whole blocks if `unit` consecutive columns are.
  bool has_blocks() const override {
    const StoredOrder& cols = arrangement_.cols;
    const auto is_whole = [&](const StoredBlocks& matrix) {
      const std::int64_t elements = matrix.block_elements();
      return matrix.factor() == 1 && (cols.is_same() || (cols.first % elements == 0 && cols.unit % elements == 0));
    };
    return arrangement_.change == NumberChange::kNone && std::ranges::all_of(rows_.matrices, is_whole);
  }

  void copy_blocks(std::int64_t row, std::int64_t first, std::int64_t count, std::byte* to) const override {
    const auto [matrix, index] = rows_.at(arrangement_.rows.stored(row));
    const std::byte* const blocks = matrix->row(index);
    const std::int64_t bytes = matrix->block_bytes();
    const StoredOrder& cols = arrangement_.cols;
    if (cols.is_same()) {
      std::memcpy(to, blocks + first * bytes, static_cast<std::size_t>(count * bytes));
      return;
    }
    const std::int64_t elements = matrix->block_elements();
    for (std::int64_t block = first; block < first + count; ++block, to += bytes)
      std::memcpy(to, blocks + cols.stored(block * elements) / elements * bytes, static_cast<std::size_t>(bytes));
  }

 private:
  void read_row(std::int64_t row, std::int64_t col, std::int64_t count, float* to) const override {
    const auto [matrix, index] = rows_.at(arrangement_.rows.stored(row));
    const StoredOrder& cols = arrangement_.cols;
    if (cols.is_same()) {
      matrix->read(index, col, count, to);
    } else {
      // Columns are permuted in blocks of `unit` consecutive columns, so a whole block is copied at a time.
      for (std::int64_t done = 0; done < count;) {
        const std::int64_t at = col + done;
        const std::int64_t now = std::min(count - done, cols.unit - (at - cols.first) % cols.unit);
        matrix->read(index, cols.stored(at), now, to + done);
        done += now;
      }
    }
    change_numbers(arrangement_.change, to, count);
  }

  JoinedRows rows_;
  RowArrangement arrangement_;
};

class ReorderedRows : public RowElements {
 public:
  ReorderedRows(std::shared_ptr<const TensorElements> base, std::int64_t cols, const RowArrangement& arrangement)
      : RowElements(cols), base_(std::move(base)), cols_(cols), arrangement_(arrangement) {}

 private:
  void read_row(std::int64_t row, std::int64_t col, std::int64_t count, float* to) const override {
    const std::int64_t first = arrangement_.rows.stored(row) * cols_;
    const StoredOrder& cols = arrangement_.cols;
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t at = col + done;
      const std::int64_t now =
          cols.is_same() ? count : std::min(count - done, cols.unit - (at - cols.first) % cols.unit);
      base_->read(first + cols.stored(at), now, reinterpret_cast<std::byte*>(to + done));
      done += now;
    }
    change_numbers(arrangement_.change, to, count);
  }

  std::shared_ptr<const TensorElements> base_;
  std::int64_t cols_;
  RowArrangement arrangement_;
};

class StackedElements : public TensorElements {
 public:
  StackedElements(std::vector<std::shared_ptr<const TensorElements>> parts, std::int64_t elements)
      : parts_(std::move(parts)), elements_(elements) {}

  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    while (count > 0) {
      const std::int64_t now = std::min(count, elements_ - first % elements_);
      parts_[static_cast<std::size_t>(first / elements_)]->read(first % elements_, now, to);
      to += now * std::int64_t{sizeof(float)};
      first += now;
      count -= now;
    }
  }

 private:
  std::vector<std::shared_ptr<const TensorElements>> parts_;
  std::int64_t elements_;  // elements in each part
};

class ColumnElements : public TensorElements {
 public:
  ColumnElements(const StoredBlocks& matrix, std::int64_t col) : matrix_(matrix), col_(col) {}

  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    for (std::int64_t row = first; row < first + count; ++row, to += sizeof(float)) {
      float number = 0;
      matrix_.read(row, col_, 1, &number);
      std::memcpy(to, &number, sizeof number);
    }
  }

 private:
  StoredBlocks matrix_;
  std::int64_t col_;
};

class KeptNumbers : public TensorElements {
 public:
  explicit KeptNumbers(std::vector<float> numbers) : numbers_(std::move(numbers)) {}
  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    std::memcpy(to, numbers_.data() + first, static_cast<std::size_t>(count) * sizeof(float));
  }

 private:
  std::vector<float> numbers_;
};

class Mxfp4Values : public TensorElements {
 public:
  explicit Mxfp4Values(JoinedRows rows) : rows_(std::move(rows)), row_bytes_(rows_.matrices[0].cols() / 2) {}

  // A stored block has its exponent first, then 16 bytes. Byte i contains elements i and i + 16.
  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    for (std::int64_t i = first; i < first + count; ++i) {
      const auto [matrix, index] = rows_.at(i / row_bytes_);
      const std::int64_t byte = i % row_bytes_;
      const std::byte* const values = matrix->row(index) + byte / kMxfp4Bytes * (kMxfp4Bytes + 1) + 1;
      *to++ = value(values, 2 * (byte % kMxfp4Bytes)) | value(values, 2 * (byte % kMxfp4Bytes) + 1) << 4;
    }
  }

 private:
  static std::byte value(const std::byte* values, std::int64_t element) {
    const std::byte both = values[element % kMxfp4Bytes];
    return element < kMxfp4Bytes ? both & std::byte{15} : both >> 4;
  }
  JoinedRows rows_;
  std::int64_t row_bytes_;
};

// Converts rows of MXFP4 to numbers.
class Mxfp4Numbers : public RowElements {
 public:
  explicit Mxfp4Numbers(const Mxfp4Rows& rows) : RowElements(rows.cols), rows_(rows) {}

 private:
  void read_row(std::int64_t row, std::int64_t col, std::int64_t count, float* to) const override {
    const std::int64_t at = (rows_.first + row * rows_.step) * rows_.cols;
    for (std::int64_t i = at + col; i < at + col + count; ++i) {
      const auto code = static_cast<std::uint32_t>(rows_.values[i / 2]) >> (4 * (i % 2)) & 15u;
      const auto exponent = static_cast<std::uint32_t>(rows_.exponents[i / kMxfp4Block]);
      *to++ = block_bytes::half_e8m0(exponent) * static_cast<float>(block_bytes::kE2M1Doubled[code]);
    }
  }

  Mxfp4Rows rows_;
};

class Mxfp4Exponents : public TensorElements {
 public:
  explicit Mxfp4Exponents(JoinedRows rows)
      : rows_(std::move(rows)), row_blocks_(rows_.matrices[0].cols() / kMxfp4Block) {}

  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    for (std::int64_t i = first; i < first + count; ++i) {
      const auto [matrix, index] = rows_.at(i / row_blocks_);
      *to++ = matrix->row(index)[i % row_blocks_ * (kMxfp4Bytes + 1)];
    }
  }

 private:
  JoinedRows rows_;
  std::int64_t row_blocks_;
};

class LatentRows : public TensorElements {
 public:
  LatentRows(const StoredBlocks& keys, const StoredBlocks& values, const LatentRowSizes& sizes)
      : keys_(keys), values_(values), sizes_(sizes) {}

  // Keys are stored transposed, so a result row takes one element from each stored row of its head. To read each stored
  // row only once, all keys of a head are read together.
  void read(std::int64_t first, std::int64_t count, std::byte* to) const override {
    const std::int64_t head_rows = sizes_.key_rows + sizes_.value_rows;
    std::vector<float> keys;
    std::int64_t keys_of = -1;
    for (std::int64_t i = first; i < first + count;) {
      const std::int64_t row = i / sizes_.latent;
      const std::int64_t col = i % sizes_.latent;
      const std::int64_t now = std::min(first + count - i, sizes_.latent - col);
      const std::int64_t head = row / head_rows;
      const std::int64_t in_head = row % head_rows;
      std::vector<float> numbers(static_cast<std::size_t>(now));
      if (in_head >= sizes_.key_rows) {
        values_.read(head * sizes_.value_rows + in_head - sizes_.key_rows, col, now, numbers.data());
      } else {
        if (std::exchange(keys_of, head) != head) keys = keys_of_head(head);
        for (std::int64_t c = 0; c < now; ++c)
          numbers[static_cast<std::size_t>(c)] = keys[static_cast<std::size_t>((col + c) * sizes_.key_rows + in_head)];
      }
      std::memcpy(to, numbers.data(), numbers.size() * sizeof(float));
      to += numbers.size() * sizeof(float);
      i += now;
    }
  }

 private:
  std::vector<float> keys_of_head(std::int64_t head) const {
    std::vector<float> keys(static_cast<std::size_t>(sizes_.latent * sizes_.key_rows));
    for (std::int64_t row = 0; row < sizes_.latent; ++row)
      keys_.read(head * sizes_.latent + row, 0, sizes_.key_rows, keys.data() + row * sizes_.key_rows);
    return keys;
  }

  StoredBlocks keys_;
  StoredBlocks values_;
  LatentRowSizes sizes_;
};

}  // namespace

std::int64_t StoredOrder::stored(std::int64_t index) const {
  if (is_same() || index < first) return index;
  const std::int64_t group = a * b * unit;
  const std::int64_t begin = first + (index - first) / group * group;
  const std::int64_t in_group = index - begin;
  const std::int64_t i = in_group / (b * unit);
  const std::int64_t j = in_group / unit % b;
  return begin + (j * a + i) * unit + in_group % unit;
}

JoinedRows::Row JoinedRows::at(std::int64_t row) const {
  if (matrices.size() == 1) return {&matrices[0], row};
  return {&matrices[static_cast<std::size_t>(row % 2)], row / 2};
}

std::shared_ptr<const TensorElements> make_rows(JoinedRows rows, const RowArrangement& arrangement) {
  return std::make_shared<const ArrangedRows>(std::move(rows), arrangement);
}

std::shared_ptr<const TensorElements> make_reordered(std::shared_ptr<const TensorElements> base, std::int64_t cols,
                                                     const RowArrangement& arrangement) {
  return std::make_shared<const ReorderedRows>(std::move(base), cols, arrangement);
}

std::shared_ptr<const TensorElements> make_mxfp4_numbers(const Mxfp4Rows& rows) {
  return std::make_shared<const Mxfp4Numbers>(rows);
}

std::shared_ptr<const TensorElements> make_stack(std::vector<std::shared_ptr<const TensorElements>> parts,
                                                 std::int64_t elements) {
  return std::make_shared<const StackedElements>(std::move(parts), elements);
}

std::shared_ptr<const TensorElements> make_column(const StoredBlocks& matrix, std::int64_t col) {
  return std::make_shared<const ColumnElements>(matrix, col);
}

std::shared_ptr<const TensorElements> make_numbers(std::vector<float> numbers) {
  return std::make_shared<const KeptNumbers>(std::move(numbers));
}

std::shared_ptr<const TensorElements> make_mxfp4_values(JoinedRows rows) {
  return std::make_shared<const Mxfp4Values>(std::move(rows));
}

std::shared_ptr<const TensorElements> make_mxfp4_exponents(JoinedRows rows) {
  return std::make_shared<const Mxfp4Exponents>(std::move(rows));
}

std::shared_ptr<const TensorElements> make_latent_rows(const StoredBlocks& keys, const StoredBlocks& values,
                                                       const LatentRowSizes& sizes) {
  return std::make_shared<const LatentRows>(keys, values, sizes);
}

}  // namespace tessera
