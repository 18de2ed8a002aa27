#include "tessera/model/weights/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>

#include "tessera/base/ceil_div.h"
#include "tessera/base/progress.h"
#include "tessera/device/alignment.h"
#include "tessera/model/weights/padded_part.h"
#include "tessera/model/weights/weight_upload.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

namespace tessera {
namespace {

// Returns the size of the weight in bytes. Precondition: its shape is constant.
Result<std::size_t> bytes_of(const WeightSpec& spec) {
  return static_cast<std::size_t>(TRY(ir::size_bytes(spec.type, {}).with_context(spec.name)));
}

// Returns the number of elements to upload in one piece: the greatest number up to `most` that forms whole groups of
// sixteen rows. The rows of a group are packed together, so a piece must not divide a group.
Result<std::int64_t> packed_piece(const WeightPart& part, const SliceRuns& runs, std::int64_t most) {
  const std::int64_t row_bytes = runs.num_runs > 1 ? runs.run : part.shape[1];
  const std::int64_t packed_bytes = kPackedRows * row_bytes;
  if (packed_bytes <= most) return most / packed_bytes * packed_bytes;
  return unimplemented(
      fmt::format("{}: rows of {} bytes of blocks; accepted: up to {}", part.tensor, row_bytes, most / kPackedRows));
}

// Writes the part's bytes to `to`, in pieces that fit into a buffer.
Status upload_part(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                   const WeightSource& source, DeviceAddress to, WeightUpload& upload) {
  const std::int64_t element = stored_dtype_bytes(dtype);
  std::int64_t most = static_cast<std::int64_t>(WeightUpload::kBufferBytes) / element;
  if (std::holds_alternative<BlockStorage>(part.storage)) most = TRY(packed_piece(part, runs, most));
  for (std::int64_t first = 0; first < runs.num_elements();) {
    const SliceRuns piece = runs.piece(first, most);
    TRY(upload.write(to + first * element, static_cast<std::size_t>(piece.num_elements() * element),
                     [&](std::span<std::byte> host) { return source(spec, part, dtype, piece, host); }));
    first += piece.num_elements();
  }
  return ok_status();
}

// Writes a part, padded with zero rows and columns, in pieces of whole rows.
Status upload_padded(const WeightSpec& spec, const WeightPart& part, StoredDtype dtype, const SliceRuns& runs,
                     const PartExtent& extent, const WeightSource& source, DeviceAddress to, WeightUpload& upload) {
  const auto element = static_cast<std::size_t>(stored_dtype_bytes(dtype));
  const std::size_t row_bytes = static_cast<std::size_t>(extent.padded_cols) * element;
  const std::size_t read_bytes = static_cast<std::size_t>(extent.cols) * element;
  const auto most = static_cast<std::int64_t>(WeightUpload::kBufferBytes / row_bytes);
  if (most == 0)
    return unimplemented(fmt::format("{}: padded rows of {} bytes; accepted: up to {}", part.tensor, row_bytes,
                                     WeightUpload::kBufferBytes));
  for (std::int64_t first = 0; first < extent.padded_rows; first += most) {
    const std::int64_t count = std::min(most, extent.padded_rows - first);
    const std::int64_t stored = std::clamp<std::int64_t>(extent.rows - first, 0, count);
    TRY(upload.write(to + first * static_cast<std::int64_t>(row_bytes), static_cast<std::size_t>(count) * row_bytes,
                     [&](std::span<std::byte> host) -> Status {
                       if (stored > 0) {
                         const SliceRuns piece = runs.piece(first * extent.cols, stored * extent.cols);
                         TRY(source(spec, part, dtype, piece,
                                    host.first(static_cast<std::size_t>(stored) * read_bytes)));
                       }
                       pad_rows(host, stored, read_bytes, row_bytes);
                       return ok_status();
                     }));
  }
  return ok_status();
}

Status upload_weight(const WeightSpec& spec, const WeightSource& source, DeviceAddress to, WeightUpload& upload) {
  const std::size_t bytes = TRY(bytes_of(spec));
  const StoredDtype dtype = TRY(stored_dtype_of(spec.type.dtype));
  if (spec.parts.empty()) {
    const StoredTensor values{.name = spec.name,
                              .dtype = StoredDtype::kF32,
                              .shape = {static_cast<std::int64_t>(spec.constant.size())},
                              .data = std::as_bytes(std::span(spec.constant))};
    return upload.write(to, bytes, [&](std::span<std::byte> host) { return copy_tensor(values, dtype, host); });
  }
  std::size_t used = 0;
  for (const WeightPart& part : spec.parts) {
    const SliceRuns runs = TRY(slice_runs(part.shape, part.slice).with_context(part.tensor));
    const PartExtent extent = TRY(part_extent(part).with_context(part.tensor));
    const auto part_bytes = static_cast<std::size_t>(extent.num_elements() * stored_dtype_bytes(dtype));
    if (used + part_bytes > bytes)
      return internal_error(fmt::format("the parts of {} do not fit its type {}", spec.name, spec.type.to_string()));
    TRY(extent.is_padded() ? upload_padded(spec, part, dtype, runs, extent, source, to + used, upload)
                           : upload_part(spec, part, dtype, runs, source, to + used, upload));
    used += part_bytes;
  }
  return ok_status();
}

// Returns the number of parameters that one element of the stored tensor contains.
std::int64_t parameters_of_element(const WeightPart& part) {
  using Content = PackedStorage::Content;
  if (const auto* packed = std::get_if<PackedStorage>(&part.storage))
    return packed->content == Content::kFourBits ? 2 : packed->content == Content::kBytes ? 1 : 0;
  if (const auto* nibbles = std::get_if<NibbleStorage>(&part.storage)) return nibbles->pairs ? 8 : 0;
  const bool helps =
      std::holds_alternative<GridStorage>(part.storage) || std::holds_alternative<IndexStorage>(part.storage);
  return helps ? 0 : 1;
}

}  // namespace

std::vector<std::int64_t> stored_shape(const WeightPart& part) {
  if (const auto* strided = std::get_if<StridedStorage>(&part.storage)) return strided->tensor_shape;
  if (const auto* rounded = std::get_if<RoundedStorage>(&part.storage)) return rounded->numbers.tensor_shape;
  if (const auto* packed = std::get_if<PackedStorage>(&part.storage)) return packed->tensor_shape;
  if (std::holds_alternative<TransposedStorage>(part.storage)) return {part.shape.rbegin(), part.shape.rend()};
  if (const auto* nibbles = std::get_if<NibbleStorage>(&part.storage)) {
    std::vector<std::int64_t> shape{nibbles->rows, ceil_div(nibbles->cols, nibbles->block)};
    if (nibbles->transposed) std::swap(shape[0], shape[1]);
    std::int64_t& packed = shape[static_cast<std::size_t>(nibbles->packed_dim)];
    packed = ceil_div(packed, 8);
    return shape;
  }
  if (const auto* blocks = std::get_if<BlockStorage>(&part.storage)) return {blocks->rows, blocks->cols};
  if (const auto* grid = std::get_if<GridStorage>(&part.storage)) {
    std::vector<std::int64_t> shape{ceil_div(grid->rows, grid->block_rows), ceil_div(grid->cols, grid->block_cols)};
    if (grid->transposed) std::swap(shape[0], shape[1]);
    return shape;
  }
  return part.shape;
}

std::int64_t parameter_count(std::span<const WeightSpec> specs) {
  std::set<std::string_view> counted;
  std::int64_t count = 0;
  for (const WeightSpec& spec : specs) {
    for (const std::vector<WeightPart>* parts : {&spec.parts, &spec.elsewhere}) {
      for (const WeightPart& part : *parts) {
        if (!counted.insert(part.tensor).second) continue;
        const std::vector<std::int64_t> shape = stored_shape(part);
        count += std::accumulate(shape.begin(), shape.end(), parameters_of_element(part), std::multiplies<>());
      }
    }
  }
  return count;
}

Result<StoredDtype> stored_dtype_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat32: return StoredDtype::kF32;
    case ir::DType::kFloat16: return StoredDtype::kF16;
    case ir::DType::kBFloat16: return StoredDtype::kBF16;
    case ir::DType::kUInt8: return StoredDtype::kU8;
    case ir::DType::kInt32: return StoredDtype::kI32;
    default: return unimplemented(fmt::format("weights of type {}", ir::dtype_name(dtype)));
  }
}

Result<Weights> Weights::allocate(std::span<const WeightSpec> specs, Device& device) {
  std::size_t total = 0;
  for (const WeightSpec& spec : specs) total += align_up(TRY(bytes_of(spec)));
  Weights weights;
  weights.memory_ = TRY(device.allocate(total, "weights"));
  DeviceAddress next = weights.memory_->data();
  for (const WeightSpec& spec : specs) {
    weights.addresses_.emplace(spec.name, next);
    next += align_up(TRY(bytes_of(spec)));
  }
  return weights;
}

Status fill_weights(std::span<const WeightSpec> specs, const Weights::Addresses& addresses, const WeightSource& source,
                    Device& device, bool show_progress) {
  std::size_t total = 0;
  for (const WeightSpec& spec : specs) total += TRY(bytes_of(spec));
  Progress progress("Loading weights", static_cast<std::int64_t>(total), "B", show_progress);
  WeightUpload upload = TRY(WeightUpload::create(device));
  for (const WeightSpec& spec : specs) {
    TRY(upload_weight(spec, source, addresses.find(spec.name)->second, upload));
    progress.advance(static_cast<std::int64_t>(TRY(bytes_of(spec))));
  }
  return upload.finish();
}

Result<Weights> Weights::load(std::span<const WeightSpec> specs, const WeightSource& source, Device& device,
                              bool show_progress) {
  Weights weights = TRY(allocate(specs, device));
  TRY(fill_weights(specs, weights.addresses(), source, device, show_progress));
  return weights;
}

}  // namespace tessera
