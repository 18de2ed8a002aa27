#include "tessera/model/weights/matrix_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tessera/model/weights/stored_codec.h"

namespace tessera {
namespace {

constexpr std::int64_t kParallelElements = 1 << 16;
constexpr std::int64_t kChunk = 1024;  // number of elements that are converted at a time, through a float32 buffer
constexpr std::int64_t kMostElementBytes = 4;  // size of the largest element that find_decode() supports

// Decodes `count` elements that are `stride` elements apart.
using Decode = void (*)(const std::byte* src, std::int64_t stride, float* dst, std::int64_t count);
using Encode = void (*)(const float* src, std::byte* dst, std::int64_t count);

template <StoredDtype kType>
void decode(const std::byte* src, std::int64_t stride, float* dst, std::int64_t count) {
  using Bits = typename Codec<kType>::Bits;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, src + i * stride * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    dst[i] = Codec<kType>::decode(bits);
  }
}

template <StoredDtype kType>
void encode(const float* src, std::byte* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const typename Codec<kType>::Bits bits = Codec<kType>::encode(src[i]);
    std::memcpy(dst + i * static_cast<std::int64_t>(sizeof bits), &bits, sizeof bits);
  }
}

Decode find_decode(StoredDtype dtype) {
  switch (dtype) {
    case StoredDtype::kF32: return decode<StoredDtype::kF32>;
    case StoredDtype::kF16: return decode<StoredDtype::kF16>;
    case StoredDtype::kBF16: return decode<StoredDtype::kBF16>;
    case StoredDtype::kF8E4M3: return decode<StoredDtype::kF8E4M3>;
    case StoredDtype::kF8E5M2: return decode<StoredDtype::kF8E5M2>;
    case StoredDtype::kI8: return decode<StoredDtype::kI8>;
    default: return nullptr;
  }
}

Encode find_encode(StoredDtype dtype) {
  switch (dtype) {
    case StoredDtype::kF32: return encode<StoredDtype::kF32>;
    case StoredDtype::kF16: return encode<StoredDtype::kF16>;
    case StoredDtype::kBF16: return encode<StoredDtype::kBF16>;
    default: return nullptr;
  }
}

// Reads `runs` in chunks. fill(row, col, floats, count) fills a chunk with floats, which are then written to `dst` as
// `dtype`.
template <class Fill>
Status read_chunks(const StoredTensor& stored, std::int64_t cols, const SliceRuns& runs, StoredDtype dtype,
                   std::span<std::byte> dst, const Fill& fill) {
  const Encode encode_run = find_encode(dtype);
  const std::int64_t bytes = stored_dtype_bytes(dtype);
  if (encode_run == nullptr || static_cast<std::int64_t>(dst.size()) != runs.num_elements() * bytes ||
      runs.num_runs < 1 || runs.run < 1 || runs.start < 0 ||
      runs.start + (runs.num_runs - 1) * runs.stride + runs.run > stored.num_elements()) {
    return invalid_argument(fmt::format(
        "tensor \"{}\": {} elements to {} bytes of {}; accepted: elements of its shape {} to F32, F16 or BF16",
        stored.name, runs.num_elements(), dst.size(), stored_dtype_name(dtype), shape_text(stored.shape)));
  }
  const RowPieces pieces(runs, cols);
#pragma omp parallel for schedule(static) if (runs.num_elements() > kParallelElements)
  for (std::int64_t i = 0; i < pieces.size(); ++i) {
    const RowPiece piece = pieces[i];
    std::array<float, kChunk> floats;
    for (std::int64_t done = 0; done < piece.count; done += kChunk) {
      const std::int64_t count = std::min(kChunk, piece.count - done);
      fill(piece.row, piece.col + done, floats.data(), count);
      encode_run(floats.data(), dst.data() + (piece.at + done) * bytes, count);
    }
  }
  return ok_status();
}

Result<Decode> decode_of(const StoredTensor& tensor) {
  TRY(expect_all_elements(tensor));
  const Decode found = find_decode(tensor.dtype);
  if (found == nullptr) {
    return unimplemented(
        fmt::format("tensor \"{}\": numbers of type {}; accepted: F32, F16, BF16, F8_E4M3, F8_E5M2, I8", tensor.name,
                    stored_dtype_name(tensor.dtype)));
  }
  return found;
}

Status expect_matrix(const StoredTensor& tensor) {
  if (tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0) return ok_status();
  return invalid_argument(
      fmt::format("tensor \"{}\": shape is {}; accepted: a matrix", tensor.name, shape_text(tensor.shape)));
}

// Returns whether the matrix lies within the tensor. The checks cannot overflow, even for malicious sizes.
bool lies_within(const StridedMatrix& m, std::int64_t elements) {
  if (m.rows < 1 || m.cols < 1 || m.offset < 0 || m.row_stride < 0 || m.col_stride < 0 || m.offset >= elements)
    return false;
  const std::int64_t rest = elements - 1 - m.offset;
  const auto most = [&](std::int64_t stride) { return stride == 0 ? rest : rest / stride; };
  return m.rows - 1 <= most(m.row_stride) && m.cols - 1 <= most(m.col_stride) &&
         (m.rows - 1) * m.row_stride <= rest - (m.cols - 1) * m.col_stride;
}

Status expect_within(const StoredTensor& stored, const StridedMatrix& matrix) {
  if (lies_within(matrix, stored.num_elements())) return ok_status();
  return invalid_argument(
      fmt::format("tensor \"{}\": a matrix of {} by {} from element {}, {} and {} apart; accepted: within its shape {}",
                  stored.name, matrix.rows, matrix.cols, matrix.offset, matrix.row_stride, matrix.col_stride,
                  shape_text(stored.shape)));
}

}  // namespace

RowPiece RowPieces::operator[](std::int64_t i) const {
  const std::int64_t run = i / per_run_;
  const std::int64_t begin = runs_.start + run * runs_.stride;  // start of the run, as an element index in the matrix
  const std::int64_t row = begin / cols_ + i % per_run_;
  const std::int64_t from = std::max(begin, row * cols_);
  const std::int64_t to = std::min(begin + runs_.run, (row + 1) * cols_);
  return {.row = row, .col = from - row * cols_, .count = to - from, .at = run * runs_.run + from - begin};
}

Result<StridedRows> StridedRows::of(const StoredTensor& stored, const StridedMatrix& matrix) {
  const Decode decode = TRY(decode_of(stored));
  TRY(expect_within(stored, matrix));
  return StridedRows(decode, stored, matrix);
}

void StridedRows::read(std::int64_t row, std::int64_t col, std::span<float> floats) const {
  const std::int64_t first = index(row, col);
  const std::int64_t stride = matrix_.col_stride;
  if (made_ == nullptr) return decode_(data_ + first * element_bytes_, stride, floats.data(), std::ssize(floats));
  // Elements are computed many at a time if they are adjacent, otherwise one at a time.
  const std::int64_t most = stride == 1 ? kChunk : 1;
  std::array<std::byte, kChunk * kMostElementBytes> elements;
  for (std::int64_t done = 0; done < std::ssize(floats); done += most) {
    const std::int64_t count = std::min(most, std::ssize(floats) - done);
    made_->read(first + done * stride, count, elements.data());
    decode_(elements.data(), 1, floats.data() + done, count);
  }
}

Status read_strided(const StoredTensor& stored, const StridedMatrix& matrix, const SliceRuns& runs, StoredDtype dtype,
                    std::span<std::byte> dst) {
  const StridedRows rows = TRY(StridedRows::of(stored, matrix));
  return read_chunks(stored, matrix.cols, runs, dtype, dst,
                     [&](std::int64_t row, std::int64_t col, float* floats, std::int64_t count) {
                       rows.read(row, col, {floats, static_cast<std::size_t>(count)});
                     });
}

Status read_packed(const StoredTensor& stored, const StridedMatrix& matrix, const SliceRuns& runs,
                   std::span<std::byte> dst) {
  TRY(expect_within(stored, matrix));
  const std::int64_t elements = matrix.rows * matrix.cols;
  if (stored_dtype_bytes(stored.dtype) != 1 || matrix.col_stride != 1 ||
      static_cast<std::int64_t>(dst.size()) != runs.num_elements() || runs.num_runs < 1 || runs.run < 1 ||
      runs.start < 0 || runs.start + (runs.num_runs - 1) * runs.stride + runs.run > elements) {
    return invalid_argument(
        fmt::format("tensor \"{}\" of {}: {} bytes to {}; accepted: bytes of its matrix of {} by {}", stored.name,
                    stored_dtype_name(stored.dtype), runs.num_elements(), dst.size(), matrix.rows, matrix.cols));
  }
  const RowPieces pieces(runs, matrix.cols);
#pragma omp parallel for schedule(static) if (runs.num_elements() > kParallelElements)
  for (std::int64_t i = 0; i < pieces.size(); ++i) {
    const RowPiece piece = pieces[i];
    const std::int64_t first = matrix.offset + piece.row * matrix.row_stride + piece.col;
    if (stored.made != nullptr) {
      stored.made->read(first, piece.count, dst.data() + piece.at);
    } else {
      std::memcpy(dst.data() + piece.at, stored.data.data() + first, static_cast<std::size_t>(piece.count));
    }
  }
  return ok_status();
}

Status read_transposed(const StoredTensor& stored, const SliceRuns& runs, StoredDtype dtype, std::span<std::byte> dst) {
  TRY(expect_matrix(stored));
  const std::int64_t cols = stored.shape[0];
  const std::int64_t rows = stored.shape[1];
  return read_strided(stored, {.rows = rows, .cols = cols, .row_stride = 1, .col_stride = rows}, runs, dtype, dst);
}

Status read_scaled(const StoredTensor& stored, const BlockScales& scales, const SliceRuns& runs, StoredDtype dtype,
                   std::span<std::byte> dst) {
  TRY(expect_matrix(stored));
  const std::int64_t cols = stored.shape[1];
  const StridedRows rows = TRY(StridedRows::of(stored, {.rows = stored.shape[0], .cols = cols, .row_stride = cols}));
  if (scales.block_rows < 1 || scales.block_cols < 1) {
    return invalid_argument(fmt::format("tensor \"{}\": blocks of {} by {}; accepted: 1 or more each", stored.name,
                                        scales.block_rows, scales.block_cols));
  }
  const std::int64_t blocks_across = (cols - 1) / scales.block_cols + 1;
  const std::int64_t blocks = ((stored.shape[0] - 1) / scales.block_rows + 1) * blocks_across;
  if (scales.tensor.num_elements() != blocks) {
    return invalid_argument(fmt::format("tensor \"{}\" has {} scales; accepted: {}, for {} in blocks of {} by {}",
                                        scales.tensor.name, scales.tensor.num_elements(), blocks,
                                        shape_text(stored.shape), scales.block_rows, scales.block_cols));
  }
  std::vector<float> scale(static_cast<std::size_t>(blocks));
  TRY(StridedRows::of(scales.tensor, {.rows = 1, .cols = blocks})).read(0, 0, scale);
  return read_chunks(stored, cols, runs, dtype, dst,
                     [&](std::int64_t row, std::int64_t col, float* floats, std::int64_t count) {
                       rows.read(row, col, {floats, static_cast<std::size_t>(count)});
                       const float* of_row = scale.data() + row / scales.block_rows * blocks_across;
                       for (std::int64_t i = 0; i < count; ++i) floats[i] *= of_row[(col + i) / scales.block_cols];
                     });
}

}  // namespace tessera
