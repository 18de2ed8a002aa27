#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "tessera/base/json.h"
#include "tessera/base/replacement_file.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

Status check(const std::string& path, std::span<const TensorLayout> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorLayout& tensor : tensors) {
    const std::string what = fmt::format("writing {}: tensor {}", path, Json(tensor.name).dump());
    if (tensor.name == "__metadata__") return invalid_argument(what + ": the name is reserved by the format");
    if (!names.insert(tensor.name).second) return invalid_argument(what + " is given twice");
    if (tensor.shape.size() > SafetensorsFile::kMaxRank) {
      return invalid_argument(fmt::format("{}: shape is {}; accepted: at most {} dimensions", what,
                                          shape_text(tensor.shape), SafetensorsFile::kMaxRank));
    }
    if (!tensor_bytes(tensor.shape, tensor.dtype)) {
      return invalid_argument(fmt::format("{}: shape is {}; accepted: sizes of 0 or more whose product fits 63 bits",
                                          what, shape_text(tensor.shape)));
    }
  }
  return ok_status();
}

std::int64_t bytes_of(const TensorLayout& tensor) { return tensor_bytes(tensor.shape, tensor.dtype).value_or(0); }

// Returns the header's length and the header, padded with spaces to a multiple of 8. `order` gives the order in which
// the file contains the tensors' data.
std::string header_bytes(std::span<const TensorLayout> tensors, std::span<const std::size_t> order,
                         const std::map<std::string, std::string>& metadata) {
  Json::Object members;
  if (!metadata.empty()) {
    Json::Object strings;
    for (const auto& [key, value] : metadata) strings.emplace_back(key, Json(value));
    members.emplace_back("__metadata__", Json::object(std::move(strings)));
  }
  std::int64_t offset = 0;
  for (const std::size_t index : order) {
    const TensorLayout& tensor = tensors[index];
    Json::Array shape;
    for (std::int64_t size : tensor.shape) shape.emplace_back(size);
    Json::Array range;
    range.emplace_back(offset);
    offset += bytes_of(tensor);
    range.emplace_back(offset);
    Json::Object entry;
    entry.emplace_back("dtype", Json(stored_dtype_name(tensor.dtype)));
    entry.emplace_back("shape", Json(std::move(shape)));
    entry.emplace_back("data_offsets", Json(std::move(range)));
    members.emplace_back(tensor.name, Json::object(std::move(entry)));
  }
  std::string text = Json::object(std::move(members)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace

Status write_safetensors(const std::string& path, std::span<const TensorLayout> tensors, const TensorContent& content,
                         const std::map<std::string, std::string>& metadata) {
  TRY(check(path, tensors));
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t i) { return stored_dtype_bytes(tensors[i].dtype); });
  ReplacementFile file(path);
  const std::string header = header_bytes(tensors, order, metadata);
  TRY(file.write(0, std::as_bytes(std::span(header))));
  std::vector<PlacedTensor> placed;
  auto at = static_cast<std::int64_t>(header.size());
  for (const std::size_t index : order) {
    placed.push_back({index, at, bytes_of(tensors[index]), stored_dtype_bytes(tensors[index].dtype)});
    at += placed.back().bytes;
  }
  TRY(write_tensor_data(placed, kWriteBytes, content, file));
  return file.commit();
}

Status write_safetensors(const std::string& path, std::span<const StoredTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<TensorLayout> layouts;
  for (const StoredTensor& tensor : tensors) {
    const std::optional<std::int64_t> bytes = tensor_bytes(tensor.shape, tensor.dtype);
    if (bytes && static_cast<std::uint64_t>(*bytes) != tensor.data.size()) {
      return invalid_argument(fmt::format(
          "writing {}: tensor {} has {} bytes of data; accepted: what dtype {} and shape {} need", path,
          Json(tensor.name).dump(), tensor.data.size(), stored_dtype_name(tensor.dtype), shape_text(tensor.shape)));
    }
    layouts.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const TensorContent content{.fill = [&](std::size_t index, std::int64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), tensors[index].data.data() + offset, to.size());
    return ok_status();
  }};
  return write_safetensors(path, layouts, content, metadata);
}

}  // namespace tessera
