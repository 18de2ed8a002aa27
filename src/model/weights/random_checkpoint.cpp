#include "tessera/model/weights/random_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/json.h"
#include "tessera/base/write_file.h"
#include "tessera/model/weights/matrix_read.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/weight_map.h"
#include "tessera/model/weights/weight_source.h"
#include "tessera/model/weights/weights.h"

namespace tessera {
namespace {

bool is_transposed(const WeightPart& part) { return std::holds_alternative<TransposedStorage>(part.storage); }

std::int64_t layout_bytes(const TensorLayout& tensor) { return tensor_bytes(tensor.shape, tensor.dtype).value_or(0); }

SliceRuns run_of(std::int64_t first, std::int64_t count) {
  return {.num_runs = 1, .run = count, .stride = count, .start = first};
}

// A matrix [rows, cols] is stored as its transpose [cols, rows]. Fills a piece of the transpose. `stored` describes the
// piece and counts elements of the transpose. The function computes those columns of the matrix that contain the piece,
// and transposes them.
Status fill_transposed(const WeightSource& source, const WeightSpec& spec, const WeightPart& part, StoredDtype dtype,
                       const SliceRuns& stored, std::span<std::byte> to) {
  const std::int64_t rows = part.shape[0];
  const std::int64_t first_col = stored.start / rows;
  const std::int64_t num_cols = (stored.start + stored.run - 1) / rows - first_col + 1;
  std::vector<std::byte> columns(static_cast<std::size_t>(rows * num_cols * stored_dtype_bytes(dtype)));
  const SliceRuns runs{.num_runs = rows, .run = num_cols, .stride = part.shape[1], .start = first_col};
  TRY(source(spec, part, dtype, runs, columns));
  const StoredTensor matrix{.name = part.tensor, .dtype = dtype, .shape = {rows, num_cols}, .data = columns};
  return read_transposed(matrix, run_of(stored.start - first_col * rows, stored.run), dtype, to);
}

}  // namespace

Result<RandomCheckpoint> RandomCheckpoint::plan(std::span<const WeightSpec> weights,
                                                const RandomCheckpointOptions& options) {
  if (options.max_shard_bytes < 1)
    return invalid_argument(fmt::format("max_shard_bytes: {} is not accepted; 1 or more is", options.max_shard_bytes));
  RandomCheckpoint checkpoint;
  checkpoint.seed_ = options.seed;
  for (const WeightSpec& spec : weights)
    for (const WeightPart& part : spec.parts) TRY(checkpoint.add(spec, part).with_context(part.tensor));
  if (checkpoint.tensors_.empty()) return invalid_argument("the model has no weights that a checkpoint would hold");
  checkpoint.divide(options.max_shard_bytes);
  return checkpoint;
}

Status RandomCheckpoint::add(const WeightSpec& spec, const WeightPart& part) {
  const auto* bytes = std::get_if<PackedStorage>(&part.storage);
  const bool quantised =
      std::holds_alternative<ScaledStorage>(part.storage) || std::holds_alternative<NibbleStorage>(part.storage) ||
      std::holds_alternative<GridStorage>(part.storage) || std::holds_alternative<RoundedStorage>(part.storage) ||
      (bytes != nullptr && bytes->dtype != StoredDtype::kU8);
  if (quantised) return unimplemented("random values of quantised tensors; accepted: tensors of F32, F16 and BF16");
  const StoredDtype dtype = TRY(stored_dtype_of(spec.type.dtype));
  TensorLayout tensor{.name = part.tensor, .dtype = dtype, .shape = stored_shape(part)};
  if (!tensor_bytes(tensor.shape, tensor.dtype))
    return invalid_argument(fmt::format("shape {} is more than a file can hold", shape_text(tensor.shape)));
  const auto [known, is_new] = by_name_.emplace(tensor.name, tensors_.size());
  if (is_new) {
    tensors_.push_back(std::move(tensor));
    origins_.push_back({.init = spec.dummy_init, .part = part});
    // In a strided part, an element's random value depends on its index in the whole tensor, so the origin is the whole
    // tensor.
    if (std::holds_alternative<StridedStorage>(part.storage))
      origins_.back().part = {.tensor = part.tensor, .shape = tensors_.back().shape};
    if (auto* packed = std::get_if<PackedStorage>(&origins_.back().part.storage)) {
      packed->offset = 0;
      packed->row_stride = tensors_.back().shape.back();
      origins_.back().part.shape = tensors_.back().shape;
    }
    return ok_status();
  }
  TensorLayout& before = tensors_[known->second];
  const Origin& origin = origins_[known->second];
  if (before.shape != tensor.shape || is_transposed(origin.part) != is_transposed(part) ||
      origin.init != spec.dummy_init) {
    return invalid_argument(fmt::format("weight \"{}\" takes it in shape {}, another weight differently, in shape {}",
                                        spec.name, shape_text(tensor.shape), shape_text(before.shape)));
  }
  if (before.dtype != tensor.dtype) before.dtype = StoredDtype::kF32;
  return ok_status();
}

// Distributes the tensors over files as Hugging Face's tools do: in order, with a new file whenever the next tensor
// does not fit.
void RandomCheckpoint::divide(std::int64_t max_shard_bytes) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::int64_t bytes = layout_bytes(tensors_[i]);
    if (files_.empty() || files_.back().bytes + bytes > max_shard_bytes) files_.emplace_back();
    files_.back().tensors.push_back(i);
    files_.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    files_[i].name = files_.size() == 1 ? std::string(kWeightFile)
                                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files_.size());
}

std::int64_t RandomCheckpoint::total_bytes() const {
  std::int64_t total = 0;
  for (const File& file : files_) total += file.bytes;
  return total;
}

std::int64_t RandomCheckpoint::total_elements() const {
  std::int64_t total = 0;
  for (const TensorLayout& tensor : tensors_) total += layout_bytes(tensor) / stored_dtype_bytes(tensor.dtype);
  return total;
}

Status RandomCheckpoint::fill(std::size_t tensor, std::int64_t offset, std::span<std::byte> to) const {
  const StoredDtype dtype = tensors_[tensor].dtype;
  const Origin& origin = origins_[tensor];
  const WeightSpec spec{.name = origin.part.tensor, .dummy_init = origin.init};
  const WeightSource source = dummy_source(seed_);
  const std::int64_t element = stored_dtype_bytes(dtype);
  const SliceRuns stored = run_of(offset / element, static_cast<std::int64_t>(to.size()) / element);
  return is_transposed(origin.part) ? fill_transposed(source, spec, origin.part, dtype, stored, to)
                                    : source(spec, origin.part, dtype, stored, to);
}

Status RandomCheckpoint::write(const std::string& folder,
                               const std::function<Status(std::int64_t bytes)>& on_written) const {
  Status status = write_files(folder, on_written);
  if (status.ok()) return status;
  const std::filesystem::path in(folder);
  std::error_code absent;
  for (const File& file : files_) std::filesystem::remove(in / file.name, absent);
  std::filesystem::remove(in / kWeightIndex, absent);
  return status;
}

Status RandomCheckpoint::write_files(const std::string& folder,
                                     const std::function<Status(std::int64_t bytes)>& on_written) const {
  const std::filesystem::path in(folder);
  Json::Object weight_map;
  for (const File& file : files_) {
    std::vector<TensorLayout> layouts;
    for (const std::size_t i : file.tensors) {
      layouts.push_back(tensors_[i]);
      weight_map.emplace_back(tensors_[i].name, Json(file.name));
    }
    const TensorContent content{.fill = [&](std::size_t index, std::int64_t offset,
                                            std::span<std::byte> to) { return fill(file.tensors[index], offset, to); },
                                .on_written = on_written};
    TRY(write_safetensors((in / file.name).string(), layouts, content, {{"format", "pt"}}));
  }
  if (files_.size() == 1) return ok_status();
  Json index = Json::object();
  index.set("metadata", Json::object().set("total_size", total_bytes()))
      .set("weight_map", Json::object(std::move(weight_map)));
  return replace_file(in / kWeightIndex, index.dump(2) + "\n");
}

}  // namespace tessera
