#include "tessera/model/gguf/gguf_writer.h"

#include <fmt/format.h>

#include <unordered_set>

#include "tessera/base/ceil_div.h"
#include "tessera/base/json.h"
#include "tessera/base/replacement_file.h"
#include "tessera/model/gguf/gguf_file.h"
#include "tessera/model/weights/stored_tensor.h"

namespace tessera {
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::int64_t kAlignment = 32;  // the format's default, so no key needs to state it
// The number of bytes written at a time. Each OpenMP thread has one piece of this size in memory.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 63;  // llama.cpp's limit for tensor names

std::int64_t aligned(std::int64_t at) { return ceil_div(at, kAlignment) * kAlignment; }

Status check(const std::string& path, std::span<const GgufLayout> tensors) {
  std::unordered_set<std::string_view> names;
  for (const GgufLayout& tensor : tensors) {
    const std::string what = fmt::format("writing {}: tensor {}", path, Json(tensor.name).dump());
    if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes)
      return invalid_argument(fmt::format("{}: accepted: names of 1 to {} bytes", what, kMaxNameBytes));
    if (!names.insert(tensor.name).second) return invalid_argument(what + " is given twice");
    const std::int64_t block = block_type_info(tensor.type).elements;
    if (tensor.shape.empty() || tensor.shape.size() > GgufFile::kMaxRank || tensor.shape.back() % block != 0)
      return invalid_argument(
          fmt::format("{}: shape is {}; accepted for {}: 1 to {} dimensions, rows of a multiple of {}", what,
                      shape_text(tensor.shape), block_type_info(tensor.type).name, GgufFile::kMaxRank, block));
  }
  return ok_status();
}

template <class T>
void append_value(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Returns everything that precedes the tensors' data, with padding.
std::string header_of(const GgufMetadata& metadata, std::span<const GgufLayout> tensors) {
  std::string bytes = "GGUF";
  append_value(bytes, kVersion);
  append_value(bytes, std::uint64_t{tensors.size()});
  append_value(bytes, std::uint64_t{metadata.size()});
  bytes += metadata.bytes();
  std::int64_t offset = 0;
  for (const GgufLayout& tensor : tensors) {
    append_value(bytes, std::uint64_t{tensor.name.size()});
    bytes += tensor.name;
    append_value(bytes, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i-- > 0;) append_value(bytes, tensor.shape[i]);
    append_value(bytes, static_cast<std::uint32_t>(tensor.type));
    append_value(bytes, offset);
    offset = aligned(offset + tensor.bytes());
  }
  bytes.resize(static_cast<std::size_t>(aligned(std::ssize(bytes))));
  return bytes;
}

}  // namespace

std::int64_t GgufLayout::rows() const {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::int64_t GgufLayout::row_bytes() const {
  const BlockTypeInfo& info = block_type_info(type);
  return shape.back() / info.elements * info.bytes;
}

Status write_gguf(const std::string& path, const GgufMetadata& metadata, std::span<const GgufLayout> tensors,
                  const TensorContent& content) {
  TRY(check(path, tensors));
  const std::string header = header_of(metadata, tensors);
  std::vector<PlacedTensor> placed;
  auto at = static_cast<std::int64_t>(header.size());
  std::int64_t end = at;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    placed.push_back({.index = i, .at = at, .bytes = tensors[i].bytes(), .unit = tensors[i].row_bytes()});
    end = at + tensors[i].bytes();
    at = aligned(end);
  }
  ReplacementFile file(path);
  TRY(file.write(0, std::as_bytes(std::span(header))));
  // Readers expect the last tensor to be padded too.
  const std::string padding(static_cast<std::size_t>(at - end), '\0');
  TRY(file.write(end, std::as_bytes(std::span(padding))));
  TRY(write_tensor_data(placed, kPieceBytes, content, file));
  return file.commit();
}

}  // namespace tessera
