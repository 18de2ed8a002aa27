#include "tessera/model/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/lfs_pointer.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor data is little-endian and is used as it lies");

constexpr std::size_t kLengthBytes = 8;

// A tensor of the header, before its data range is checked.
struct Entry {
  StoredTensor view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::span<const std::byte> data) : path_(path), data_(data) {}

  Status read(const Json& header) {
    for (const auto& [name, value] : header.as_object()) {
      if (name == "__metadata__") {
        TRY(read_metadata(value));
      } else {
        TRY(read_tensor(name, value));
      }
    }
    return check_tiling();
  }

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

 private:
  Status wrong(const std::string& tensor, std::string_view field, const std::string& value,
               const std::string& accepted) const {
    return data_loss(fmt::format("{}: tensor {}: {} is {}; accepted: {}", path_, clip_text(Json(tensor).dump()), field,
                                 value, accepted));
  }

  Status read_metadata(const Json& value) {
    const auto wrong_metadata = [&](const Json& bad) {
      return data_loss(
          fmt::format("{}: __metadata__ holds {}; accepted: an object of strings", path_, shown_value(&bad)));
    };
    if (!value.is_object()) return wrong_metadata(value);
    for (const auto& [key, text] : value.as_object()) {
      if (!text.is_string()) return wrong_metadata(text);
      metadata.emplace(key, text.as_string());
    }
    return ok_status();
  }

  Status read_tensor(const std::string& name, const Json& value) {
    if (!value.is_object()) {
      return wrong(name, "its entry", shown_value(&value), "an object of dtype, shape and data_offsets");
    }
    Entry entry;
    entry.view.name = name;

    const Json* dtype = value.find("dtype");
    std::optional<StoredDtype> known;
    if (dtype != nullptr && dtype->is_string()) known = stored_dtype_from_name(dtype->as_string());
    if (!known) return wrong(name, "dtype", shown_value(dtype), stored_dtype_names());
    entry.view.dtype = *known;

    const Json* shape = value.find("shape");
    const auto is_size = [](const Json& v) { return v.is_int() && v.as_int() >= 0; };
    if (shape == nullptr || !shape->is_array() || shape->as_array().size() > SafetensorsFile::kMaxRank ||
        !std::ranges::all_of(shape->as_array(), is_size)) {
      return wrong(name, "shape", shown_value(shape),
                   fmt::format("a list of at most {} sizes, none negative", SafetensorsFile::kMaxRank));
    }
    for (const Json& size : shape->as_array()) entry.view.shape.push_back(size.as_int());
    const std::optional<std::int64_t> bytes = tensor_bytes(entry.view.shape, *known);
    if (!bytes)
      return wrong(name, "shape", shown_value(shape), "sizes whose product times the element size fits 63 bits");

    const Json* offsets = value.find("data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2 ||
        !std::ranges::all_of(offsets->as_array(), is_size)) {
      return wrong(name, "data_offsets", shown_value(offsets), "two integers, begin and end");
    }
    const std::int64_t begin = offsets->as_array()[0].as_int();
    const std::int64_t end = offsets->as_array()[1].as_int();
    if (begin > end || static_cast<std::uint64_t>(end) > data_.size()) {
      return wrong(name, "data_offsets", shown_value(offsets),
                   fmt::format("0 <= begin <= end <= {}, the bytes of data in the file", data_.size()));
    }
    if (end - begin != *bytes) {
      return wrong(name, "data_offsets", shown_value(offsets),
                   fmt::format("a range of {} bytes, as dtype {} and shape {} need", *bytes, stored_dtype_name(*known),
                               shape_text(entry.view.shape)));
    }
    entry.begin = static_cast<std::uint64_t>(begin);
    entry.end = static_cast<std::uint64_t>(end);
    entry.view.data = data_.subspan(entry.begin, entry.end - entry.begin);
    entries.push_back(std::move(entry));
    return ok_status();
  }

  // Sorts the tensors by position. Checks that each tensor begins where the previous tensor ended, and that the last
  // tensor ends at the end of the file.
  Status check_tiling() {
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::tie(e.begin, e.end, e.view.name); });
    std::uint64_t expected = 0;
    std::string before = "the start of the data";
    for (const Entry& entry : entries) {
      if (entry.begin != expected) {
        return wrong(
            entry.view.name, "data_offsets", fmt::format("[{}, {}]", entry.begin, entry.end),
            fmt::format("begin = {}: tensors neither overlap nor leave holes, and {} lies there", expected, before));
      }
      expected = entry.end;
      before = "the end of " + clip_text(Json(entry.view.name).dump());
    }
    if (expected != data_.size()) {
      return data_loss(fmt::format("{}: the file has {} bytes of data; accepted: {}, where {} lies", path_,
                                   data_.size(), expected, before));
    }
    return ok_status();
  }

  const std::string& path_;
  std::span<const std::byte> data_;
};

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  std::shared_ptr<const MappedFile> mapping = TRY(MappedFile::open(path));
  Result<SafetensorsFile> file = parse(mapping->bytes(), path);
  TRY(mapping->check_whole());  // checked first, because lost bytes may be the cause of an error in `file`
  if (file.ok()) file->mapping_ = std::move(mapping);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& path) {
  if (is_lfs_pointer({reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), std::size_t{64})}))
    return lfs_pointer_error(path);
  if (bytes.size() < kLengthBytes) {
    return data_loss(
        fmt::format("{}: the file is {} bytes long; accepted: at least {}", path, bytes.size(), kLengthBytes));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  const std::uint64_t available = bytes.size() - kLengthBytes;
  if (header_bytes > std::min(kMaxHeaderBytes, available)) {
    return data_loss(fmt::format(
        "{}: header length is {}; accepted: at most {} ({})", path, header_bytes, std::min(kMaxHeaderBytes, available),
        available < kMaxHeaderBytes ? "what follows in the file; is it truncated?" : "the format's limit"));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              static_cast<std::size_t>(header_bytes));
  if (text.empty() || text[0] != '{') {
    return data_loss(fmt::format("{}: the header begins with {}; accepted: '{{'", path,
                                 text.empty() ? "nothing" : Json(text.substr(0, 1)).dump()));
  }
  const Result<Json> header = Json::parse(text, path + ": the header");
  if (!header.ok()) return data_loss(header.status().message());

  HeaderReader reader(path, bytes.subspan(kLengthBytes + static_cast<std::size_t>(header_bytes)));
  TRY(reader.read(*header));
  SafetensorsFile file;
  file.path_ = path;
  file.metadata_ = std::move(reader.metadata);
  file.tensors_.reserve(reader.entries.size());
  for (Entry& entry : reader.entries) file.tensors_.push_back(std::move(entry.view));
  file.by_name_.reserve(file.tensors_.size());
  for (std::size_t i = 0; i < file.tensors_.size(); ++i) file.by_name_.emplace(file.tensors_[i].name, i);
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace tessera
