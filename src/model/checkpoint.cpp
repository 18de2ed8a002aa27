#include "tessera/model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/json.h"
#include "tessera/base/nearest.h"
#include "tessera/model/fields.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxIndexBytes = 100'000'000;

// "model-00002-of-00005.safetensors" → {2, 5}
struct ShardNumber {
  int index = 0;
  int count = 0;
};
std::optional<ShardNumber> shard_number(std::string_view name) {
  constexpr std::string_view kPrefix = "model-";
  constexpr std::string_view kOf = "-of-";
  constexpr std::string_view kSuffix = ".safetensors";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.find(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits, int& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value > 0;
  };
  ShardNumber shard;
  if (!number(name.substr(0, of), shard.index) || !number(name.substr(of + kOf.size()), shard.count))
    return std::nullopt;
  return shard;
}

// All of model-1-of-n … model-n-of-n in the folder, in order; empty where there is none.
Result<std::vector<std::string>> shards_by_pattern(const std::string& dir) {
  std::map<int, std::string> found;
  std::optional<int> count;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::optional<ShardNumber> shard = shard_number(name);
    if (!shard) continue;
    if (count.value_or(shard->count) != shard->count || !found.emplace(shard->index, name).second) {
      return data_loss(fmt::format("{}: shards of two sets lie together: {} and {}", dir, name, found.begin()->second));
    }
    count = shard->count;
  }
  if (error) return not_found(fmt::format("cannot list {}: {}", dir, error.message()));
  std::vector<std::string> names;
  for (const auto& [index, name] : found) names.push_back(name);
  for (int i = 1; i <= count.value_or(0); ++i) {
    if (!found.contains(i)) return not_found(fmt::format("{}: shard {} of {} is missing", dir, i, *count));
  }
  return names;
}

// weight_map of the index: tensor → file, each file a plain name in the folder.
Result<std::map<std::string, std::string>> read_weight_map(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) return not_found(fmt::format("cannot read {}: {}", path, error.message()));
  if (size > kMaxIndexBytes) {
    return invalid_argument(fmt::format("{} is {} bytes long; accepted: at most {}", path, size, kMaxIndexBytes));
  }
  const Json index = TRY(Json::read_file(path));
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return invalid_argument(fmt::format(
        "{}: field \"weight_map\" is {}; accepted: an object of tensor names to shard files", path, shown_value(map)));
  }
  std::map<std::string, std::string> result;
  for (const auto& [tensor, shard] : map->as_object()) {
    const auto plain = [](const std::string& name) {
      return name.ends_with(".safetensors") && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    };
    if (!shard.is_string() || !plain(shard.as_string())) {
      return invalid_argument(fmt::format(
          "{}: weight_map: tensor \"{}\" is in {}; accepted: the name of a .safetensors file in the same folder", path,
          clip_text(tensor), shown_value(&shard)));
    }
    result.emplace(tensor, shard.as_string());
  }
  return result;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& model_dir) {
  std::error_code error;
  if (!fs::is_directory(model_dir, error)) return not_found(fmt::format("{} is no folder", model_dir));
  Checkpoint checkpoint;
  checkpoint.model_dir_ = model_dir;
  const auto in_dir = [&](std::string_view name) { return (fs::path(model_dir) / name).string(); };

  if (fs::exists(in_dir("model.safetensors"), error)) {
    SafetensorsFile file = TRY(SafetensorsFile::open(in_dir("model.safetensors")));
    TRY(checkpoint.add_file(std::move(file)));
    return checkpoint;
  }
  const std::string index_path = in_dir("model.safetensors.index.json");
  const bool has_index = fs::exists(index_path, error);
  std::map<std::string, std::string> weight_map;
  std::vector<std::string> shards;
  if (has_index) {
    weight_map = TRY(read_weight_map(index_path));
    std::set<std::string> unique;
    for (const auto& [tensor, shard] : weight_map) unique.insert(shard);
    shards.assign(unique.begin(), unique.end());
  } else {
    shards = TRY(shards_by_pattern(model_dir));
  }
  if (shards.empty()) {
    return not_found(
        fmt::format("{} holds no weights; accepted: model.safetensors, model.safetensors.index.json with its "
                    "shards, or model-00001-of-0000n.safetensors and so on",
                    model_dir));
  }
  for (const std::string& shard : shards) {
    Result<SafetensorsFile> file = SafetensorsFile::open(in_dir(shard));
    if (!file.ok()) return std::move(file).status().with_context("shard " + shard);
    TRY(checkpoint.add_file(*std::move(file)));
  }
  for (const auto& [tensor, shard] : weight_map) {
    const auto it = checkpoint.by_name_.find(tensor);
    if (it == checkpoint.by_name_.end()) {
      return data_loss(
          fmt::format("{}: tensor \"{}\" should be in {}, but no shard has it", index_path, tensor, shard));
    }
    const std::string& actual = checkpoint.files_[it->second.file].path();
    if (fs::path(actual).filename() != shard) {
      return data_loss(
          fmt::format("{}: tensor \"{}\" should be in {}, but is in {}", index_path, tensor, shard, actual));
    }
  }
  return checkpoint;
}

Status Checkpoint::add_file(SafetensorsFile file) {
  files_.push_back(std::move(file));
  const SafetensorsFile& added = files_.back();
  for (const StoredTensor& tensor : added.tensors()) {
    const auto [it, inserted] = by_name_.emplace(tensor.name, Entry{&tensor, files_.size() - 1});
    if (!inserted) {
      return data_loss(fmt::format("tensor \"{}\" is in two shards: {} and {}", tensor.name,
                                   files_[it->second.file].path(), added.path()));
    }
    total_bytes_ += static_cast<std::int64_t>(tensor.data.size());
  }
  return ok_status();
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second.view;
}

Result<StoredTensor> Checkpoint::get(std::string_view name, std::span<const std::int64_t> expected_shape) const {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    const std::vector<std::string> near = nearest_names(name, names());
    return not_found(fmt::format("{}: tensor \"{}\" is missing; nearest of the {} there: {}", model_dir_, name,
                                 by_name_.size(),
                                 near.empty() ? "none is near" : fmt::format("{}", fmt::join(near, ", "))));
  }
  const StoredTensor& view = *it->second.view;
  const std::string& path = files_[it->second.file].path();
  if (!std::ranges::equal(view.shape, expected_shape)) {
    return invalid_argument(fmt::format("{}: tensor \"{}\": shape is {}; accepted: {}, by config.json", path, name,
                                        shape_text(view.shape), shape_text(expected_shape)));
  }
  if (!is_weight_dtype(view.dtype)) {
    return unimplemented(fmt::format("{}: tensor \"{}\": dtype is {}; accepted: F32, F16, BF16", path, name,
                                     stored_dtype_name(view.dtype)));
  }
  return view;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> result;
  result.reserve(by_name_.size());
  for (const auto& [name, entry] : by_name_) result.push_back(name);
  std::ranges::sort(result);
  return result;
}

}  // namespace tessera
