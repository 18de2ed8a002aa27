#include "tessera/model/weights/tensor_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/model/weights/stored_codec.h"

namespace tessera {
namespace {

// The number of elements that a thread processes at a time. The number is so large that the start of a thread's work
// costs little compared to the conversion of the elements.
constexpr std::int64_t kRunElements = 1 << 16;

// Copies each element with memcpy, because the mapping may have any alignment. Compilers still turn this into vector
// loads.
template <StoredDtype kFrom, StoredDtype kTo>
void convert(const std::byte* src, std::byte* dst, std::int64_t count) {
  using From = typename Codec<kFrom>::Bits;
  using To = typename Codec<kTo>::Bits;
  for (std::int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, src + i * static_cast<std::int64_t>(sizeof from), sizeof from);
    const To to = Codec<kTo>::encode(Codec<kFrom>::decode(from));
    std::memcpy(dst + i * static_cast<std::int64_t>(sizeof to), &to, sizeof to);
  }
}

using Convert = void (*)(const std::byte*, std::byte*, std::int64_t);

template <StoredDtype kFrom>
Convert converter_from(StoredDtype to) {
  switch (to) {
    case StoredDtype::kF32: return convert<kFrom, StoredDtype::kF32>;
    case StoredDtype::kF16: return convert<kFrom, StoredDtype::kF16>;
    case StoredDtype::kBF16: return convert<kFrom, StoredDtype::kBF16>;
    default: return nullptr;
  }
}

Convert converter(StoredDtype from, StoredDtype to) {
  switch (from) {
    case StoredDtype::kF32: return converter_from<StoredDtype::kF32>(to);
    case StoredDtype::kF16: return converter_from<StoredDtype::kF16>(to);
    case StoredDtype::kBF16: return converter_from<StoredDtype::kBF16>(to);
    default: return nullptr;
  }
}

}  // namespace

Result<SliceRuns> slice_runs(std::span<const std::int64_t> shape, const TensorSlice& slice) {
  SliceRuns runs{.num_runs = 1, .run = 1, .stride = 1, .start = 0};
  if (slice.size < 0) {
    for (std::int64_t size : shape) runs.run *= size;
    runs.stride = runs.run;
    return runs;
  }
  const auto dim = static_cast<std::size_t>(slice.dim);
  if (slice.dim < 0 || dim >= shape.size()) {
    return invalid_argument(fmt::format("slice along dimension {} of shape {}; accepted: 0 to {}", slice.dim,
                                        shape_text(shape), static_cast<std::int64_t>(shape.size()) - 1));
  }
  if (slice.begin < 0 || slice.size > shape[dim] || slice.begin > shape[dim] - slice.size) {
    return invalid_argument(fmt::format("slice of {} from {} along dimension {} of shape {}; accepted: within 0 to {}",
                                        slice.size, slice.begin, slice.dim, shape_text(shape), shape[dim]));
  }
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < dim; ++i) runs.num_runs *= shape[i];
  for (std::size_t i = dim + 1; i < shape.size(); ++i) inner *= shape[i];
  runs.run = slice.size * inner;
  runs.stride = shape[dim] * inner;
  runs.start = slice.begin * inner;
  return runs;
}

SliceRuns SliceRuns::piece(std::int64_t first, std::int64_t count) const {
  const std::int64_t row = first / run;
  const std::int64_t in_row = first % run;
  SliceRuns piece{.num_runs = 1, .run = run - in_row, .stride = stride, .start = start + row * stride + in_row};
  if (in_row != 0 || count < run) {
    piece.run = std::min(count, piece.run);
  } else {
    piece.num_runs = std::min(count / run, num_runs - row);
  }
  return piece;
}

Status copy_tensor(const StoredTensor& src, const TensorSlice& slice, StoredDtype dst_dtype, std::span<std::byte> dst) {
  const Result<SliceRuns> runs = slice_runs(src.shape, slice);
  if (!runs.ok()) return runs.status().with_context(fmt::format("tensor \"{}\"", src.name));
  return copy_runs(src, *runs, dst_dtype, dst);
}

Status copy_runs(const StoredTensor& src, const SliceRuns& runs, StoredDtype dst_dtype, std::span<std::byte> dst) {
  TRY(expect_all_elements(src));
  const Convert run_convert = converter(src.dtype, dst_dtype);
  if (run_convert == nullptr && src.dtype != dst_dtype) {
    return unimplemented(fmt::format("tensor \"{}\": conversion from {} to {}; accepted: between F32, F16 and BF16",
                                     src.name, stored_dtype_name(src.dtype), stored_dtype_name(dst_dtype)));
  }
  const std::int64_t src_bytes = stored_dtype_bytes(src.dtype);
  const std::int64_t dst_bytes = stored_dtype_bytes(dst_dtype);
  if (static_cast<std::uint64_t>(runs.num_elements() * dst_bytes) != dst.size()) {
    return invalid_argument(fmt::format("tensor \"{}\": destination of {} bytes; accepted: {} for {} elements of {}",
                                        src.name, dst.size(), runs.num_elements() * dst_bytes, runs.num_elements(),
                                        stored_dtype_name(dst_dtype)));
  }
  if (dst.empty()) return ok_status();

  // Splits long runs, so that all threads work even if the tensor is a single run.
  const std::int64_t cuts = (runs.run + kRunElements - 1) / kRunElements;
  const std::int64_t pieces = runs.num_runs * cuts;
  const std::byte* from = src.data.data();
  std::byte* to = dst.data();
  const bool same = src.dtype == dst_dtype;
#pragma omp parallel for schedule(static) if (runs.num_elements() > kRunElements)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t row = piece / cuts;
    const std::int64_t first = piece % cuts * kRunElements;
    const std::int64_t count = std::min(kRunElements, runs.run - first);
    const std::int64_t index = runs.start + row * runs.stride + first;
    std::byte* piece_to = to + (row * runs.run + first) * dst_bytes;
    if (src.made != nullptr && same) {
      src.made->read(index, count, piece_to);
      continue;
    }
    std::vector<std::byte> elements;
    if (src.made != nullptr) {
      elements.resize(static_cast<std::size_t>(count * src_bytes));
      src.made->read(index, count, elements.data());
    }
    const std::byte* piece_from = src.made != nullptr ? elements.data() : from + index * src_bytes;
    if (same) {
      std::memcpy(piece_to, piece_from, static_cast<std::size_t>(count * src_bytes));
    } else {
      run_convert(piece_from, piece_to, count);
    }
  }
  return ok_status();
}

}  // namespace tessera
