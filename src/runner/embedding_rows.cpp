#include "tessera/runner/embedding_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/model/model.h"
#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

// The number of values that are converted at a time.
constexpr std::size_t kSlice = std::size_t{1} << 18;

}  // namespace

EmbeddingRows::EmbeddingRows(const ir::Type& type)
    : dtype_(type.dtype),
      most_(*type.shape[0].constant()),
      row_values_(static_cast<std::size_t>(*type.shape[1].constant())) {}

Result<std::int64_t> EmbeddingRows::bytes_needed(const ir::Graph& body, std::int64_t rows, const Device& device) {
  const EmbeddingRows needed(TRY(body.type_of(input_names::kEmbeddings)));
  return (device.properties().arenas_grow ? rows : needed.most_) * needed.row_bytes();
}

Result<EmbeddingRows> EmbeddingRows::create(const ir::Graph& body, Device& device) {
  EmbeddingRows made(TRY(body.type_of(input_names::kEmbeddings)));
  const std::size_t bytes = static_cast<std::size_t>(made.most_) * made.row_values_ * ir::dtype_size(made.dtype_);
  made.arena_ = TRY(device.create_arena({.reserve_bytes = bytes, .name = "embeddings"}));
  return made;
}

void EmbeddingRows::add_to(ExternalValues& externals) const {
  externals.add(std::string(input_names::kEmbeddings), arena_->base());
}

Status EmbeddingRows::reserve(std::int64_t rows) {
  if (rows <= rows_) return ok_status();
  if (rows > most_)
    return resource_exhausted(fmt::format("embeddings of {} tokens; the model was built for {}", rows, most_));
  TRY(arena_->grow(static_cast<std::size_t>(rows) * row_values_ * ir::dtype_size(dtype_)));
  rows_ = rows;
  return ok_status();
}

Status EmbeddingRows::write(const EmbeddingWrite& write, Stream& stream) {
  const std::size_t value_bytes = ir::dtype_size(dtype_);
  DeviceAddress to = arena_->base() + static_cast<std::size_t>(write.first_row) * row_values_ * value_bytes;
  converted_.resize(std::max(converted_.size(), std::min(write.values.size(), kSlice) * value_bytes));
  for (std::size_t first = 0; first < write.values.size(); first += kSlice) {
    const std::span<const float> slice = write.values.subspan(first, std::min(kSlice, write.values.size() - first));
    TRY(narrow_floats(slice, dtype_, converted_.data()));
    TRY(stream.upload(to, converted_.data(), slice.size() * value_bytes));
    to += slice.size() * value_bytes;
  }
  return ok_status();
}

}  // namespace tessera
