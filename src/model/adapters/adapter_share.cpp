#include "tessera/model/adapters/adapter_share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "tessera/base/float16.h"
#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ir/storage_type.h"
#include "tessera/model/weights/tensor_copy.h"
#include "tessera/model/weights/weights.h"

namespace tessera {
namespace {

// Returns the index of the first value that is not finite, or -1 if all values are finite. A number is not finite if
// all bits of its exponent are ones. Adding the exponent's lowest bit carries into the sign bit in this case alone.
template <class T>
std::int64_t first_not_finite(std::span<const T> values) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  const Bits ones = std::bit_cast<Bits>(from_float<T>(std::numeric_limits<float>::infinity()));
  const Bits lowest = ones & -ones;
  const auto sum = [&](std::size_t i) {
    Bits bits;
    std::memcpy(&bits, values.data() + i, sizeof bits);  // compilers make vector loads of this
    return static_cast<Bits>((bits & ones) + lowest);
  };
  constexpr int kSign = 8 * sizeof(Bits) - 1;
  Bits sums = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sums |= sum(i);
  if (sums >> kSign == 0) return -1;
  std::size_t i = 0;
  while (sum(i) >> kSign == 0) ++i;
  return static_cast<std::int64_t>(i);
}

// Returns the error for `value`, which is not finite and has this index in the tensor.
template <class T>
Status not_finite(const StoredTensor& tensor, std::int64_t index, T value) {
  return invalid_argument(fmt::format("value {} of tensor \"{}\" is {} in the model's type; accepted are finite values",
                                      index, tensor.name, to_float(value)));
}

// Writes the linear's columns of A, [rank, cols of the linear], row by row, so that values are still in the L1 cache
// when they are checked.
template <class T>
Status write_a(const AdaptableLinear& linear, const AdaptableModule& module, const AdapterMatrices& matrices,
               StoredDtype dtype, T* to) {
  for (std::int64_t r = 0; r < matrices.rank; ++r, to += linear.cols) {
    const std::int64_t start = r * module.cols + linear.first_col;
    const std::span<T> row(to, static_cast<std::size_t>(linear.cols));
    TRY(copy_runs(matrices.a, {.num_runs = 1, .run = linear.cols, .stride = linear.cols, .start = start}, dtype,
                  std::as_writable_bytes(row)));
    if (const std::int64_t bad = first_not_finite<T>(row); bad >= 0)
      return not_finite(matrices.a, start + bad, to[bad]);
  }
  return ok_status();
}

// Writes the rows of B that belong to `range`, transposed: row r of B becomes column r of `to`, whose rows have `width`
// elements.
template <class T>
Status write_b(const AdaptableRange& range, const AdapterMatrices& matrices, StoredDtype dtype, std::int64_t width,
               T* to) {
  constexpr std::int64_t kRows = 256;  // so few that they stay in the L1 cache for most LoRA ranks
  std::vector<T> buffer(static_cast<std::size_t>(std::min(kRows, range.rows) * matrices.rank));
  for (std::int64_t first = 0; first < range.rows; first += kRows) {
    const std::int64_t count = std::min(kRows, range.rows - first);
    const std::int64_t elements = count * matrices.rank;
    const std::int64_t start = (range.first_row + first) * matrices.rank;
    const std::span<T> rows = std::span(buffer).first(static_cast<std::size_t>(elements));
    TRY(copy_runs(matrices.b, {.num_runs = 1, .run = elements, .stride = elements, .start = start}, dtype,
                  std::as_writable_bytes(rows)));
    if (const std::int64_t bad = first_not_finite<T>(rows); bad >= 0)
      return not_finite(matrices.b, start + bad, rows[static_cast<std::size_t>(bad)]);
    for (std::int64_t r = 0; r < matrices.rank; ++r) {
      const T* const from = buffer.data() + r;
      T* const column = to + r * width + first;
      for (std::int64_t row = 0; row < count; ++row) column[row] = from[row * matrices.rank];
    }
  }
  return ok_status();
}

template <class T>
Status write_part(const AdaptableLinear& linear, const AdapterLinearPart& part,
                  std::span<const AdapterMatrices* const> modules, StoredDtype dtype, std::byte* bytes) {
  T* a = reinterpret_cast<T*>(bytes + part.a_offset);
  for (std::size_t m = 0; m < modules.size(); ++m) {
    if (modules[m] == nullptr) continue;
    TRY(write_a(linear, linear.modules[m], *modules[m], dtype, a));
    a += modules[m]->rank * linear.cols;
  }
  T* b = reinterpret_cast<T*>(bytes + part.b_offset);
  const std::int64_t width = linear.rows();
  std::fill_n(b, part.most_rank * width, from_float<T>(0.0F));
  for (const AdaptableRange& range : linear.ranges) {
    if (const AdapterMatrices* module = modules[range.module]; module != nullptr)
      TRY(write_b(range, *module, dtype, width, b));
    b += range.rows;
  }
  return ok_status();
}

// Rounds `factor` to T and multiplies the values by it, as the graph does with the model's own values.
template <class T>
void scale_values(std::span<T> values, float factor) {
  if (factor == 1) return;
  const float rounded = to_float(from_float<T>(factor));
  for (T& value : values) value = from_float<T>(to_float(value) * rounded);
}

// Writes the rank's part of a matrix that replaces the module's own matrix (AdapterMatrices::whole), multiplied by the
// linear's factor.
template <class T>
Status write_whole(const AdaptableLinear& linear, const StoredTensor& tensor, StoredDtype dtype, std::byte* to) {
  const auto copy = [&](std::int64_t first, std::int64_t rows, std::int64_t width) -> Status {
    const std::span values(reinterpret_cast<T*>(to), static_cast<std::size_t>(rows * width));
    TRY(copy_tensor(tensor, {.dim = 0, .begin = first, .size = rows}, dtype, std::as_writable_bytes(values)));
    scale_values(values, static_cast<float>(linear.factor));
    if (const std::int64_t bad = first_not_finite<T>(values); bad >= 0)
      return invalid_argument(fmt::format("row {} of tensor \"{}\" has the value {}; accepted are finite values",
                                          first + bad / width, tensor.name,
                                          to_float(values[static_cast<std::size_t>(bad)])));
    to += values.size_bytes();
    return ok_status();
  };
  if (linear.embeds) return copy(linear.first_col, linear.cols, linear.rows());
  for (const AdaptableRange& range : linear.ranges) TRY(copy(range.first_row, range.rows, linear.cols));
  return ok_status();
}

// Calls f(i) for each of `count` linears and returns the error of the first linear that has one. The calls run on
// several threads, except on a CPU, whose kernels need the cores.
template <class F>
Status for_each_linear(std::size_t count, const Device& device, const F& f) {
  if (device.properties().on_host) {
    for (std::size_t i = 0; i < count; ++i) TRY(f(i));
    return ok_status();
  }
  std::vector<Status> done(count);
  parallel_for_dynamic(static_cast<std::int64_t>(count),
                       [&](std::int64_t i) { done[static_cast<std::size_t>(i)] = f(static_cast<std::size_t>(i)); });
  for (Status& status : done) TRY(std::move(status));
  return ok_status();
}

}  // namespace

Result<AdapterShare> AdapterShare::place(const std::vector<AdaptableLinear>& of_rank, ir::DType dtype,
                                         std::vector<AdapterLinearPart> linears, Device& device) {
  AdapterShare share;
  const auto element = static_cast<std::int64_t>(ir::dtype_size(dtype));
  const auto take = [&](std::int64_t elements) {
    const std::size_t begin = share.size_;
    share.size_ += static_cast<std::size_t>(align_up(elements * element));
    return begin;
  };
  for (std::size_t i = 0; i < linears.size(); ++i) {
    AdapterLinearPart& part = linears[i];
    std::int64_t rows_of_a = 0;
    for (const std::int32_t rank : part.ranks) {
      rows_of_a += rank;
      part.most_rank = std::max<std::int64_t>(part.most_rank, rank);
    }
    part.a_offset = take(rows_of_a * of_rank[i].cols);
    part.b_offset = take(of_rank[i].whole ? 0 : part.most_rank * of_rank[i].rows());
  }
  share.linears_ = std::move(linears);
  if (share.size_ > 0) share.memory_ = TRY(device.allocate_host(share.size_, "adapter"));
  return share;
}

Result<AdapterShare> AdapterShare::cut(const AdapterLayout& layout, std::size_t rank, const OfModules& matrices,
                                       Device& device) {
  const std::vector<AdaptableLinear>& of_rank = layout.linears_of(rank);
  std::vector<AdapterLinearPart> linears(of_rank.size());
  for (std::size_t i = 0; i < of_rank.size(); ++i)
    for (const AdapterMatrices* module : matrices[i]) {
      const std::int64_t rows = module == nullptr ? 0 : of_rank[i].whole ? of_rank[i].rows() : module->rank;
      linears[i].ranks.push_back(static_cast<std::int32_t>(rows));
      linears[i].scales.push_back(module == nullptr ? 0.0F : static_cast<float>(module->scale * of_rank[i].factor));
    }
  AdapterShare share = TRY(place(of_rank, layout.dtype(), std::move(linears), device));
  TRY(dispatch_dtype(layout.dtype(), "adapters", [&]<class T>() -> Status {
    const StoredDtype stored = TRY(stored_dtype_of(layout.dtype()));
    return for_each_linear(of_rank.size(), device, [&](std::size_t i) -> Status {
      const AdapterLinearPart& part = share.linears_[i];
      if (part.most_rank == 0) return ok_status();
      std::byte* const bytes = share.memory_->data();
      if (of_rank[i].whole) return write_whole<T>(of_rank[i], *matrices[i][0]->whole, stored, bytes + part.a_offset);
      return write_part<T>(of_rank[i], part, matrices[i], stored, bytes);
    });
  }));
  return share;
}

Result<AdapterShare> AdapterShare::copy(const AdapterLayout& layout, std::vector<AdapterLinearPart> linears,
                                        std::span<const std::byte> bytes, Device& device) {
  const std::vector<AdaptableLinear>& of_rank = layout.linears();
  if (linears.size() != of_rank.size())
    return data_loss(fmt::format("the adapter has {} linears; this rank accepts {}", linears.size(), of_rank.size()));
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const std::int64_t most = layout.rows_of_a(of_rank[i]);
    const auto fits = [&](std::int32_t rank) {
      return of_rank[i].whole ? rank == 0 || rank == most : rank >= 0 && rank <= most;
    };
    if (linears[i].ranks.size() != of_rank[i].modules.size() || linears[i].scales.size() != linears[i].ranks.size() ||
        !std::ranges::all_of(linears[i].ranks, fits))
      return data_loss(fmt::format(
          "the adapter's linear \"{}\" has LoRA ranks [{}] and {} scales; accepted: {} LoRA ranks from 0 to {}, with "
          "as many scales",
          of_rank[i].weight, fmt::join(linears[i].ranks, ", "), linears[i].scales.size(), of_rank[i].modules.size(),
          most));
  }
  AdapterShare share = TRY(place(of_rank, layout.dtype(), std::move(linears), device));
  if (bytes.size() != share.size_)
    return data_loss(fmt::format("the adapter has {} bytes; this rank accepts {}", bytes.size(), share.size_));
  if (share.size_ > 0) std::memcpy(share.memory_->data(), bytes.data(), share.size_);
  return share;
}

}  // namespace tessera
