#include "tessera/model/weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/nearest.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBodyPrefix = "model.";

// Finds the shards that are named "model-00001-of-…". Returns their names in order, or an empty list if the folder has
// none.
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

// A folder without weights is reported as an error. Returns the end of the message, which says what the folder contains
// instead and what to do. Returns "" if the folder contains nothing that this function knows.
std::string what_is_there(const std::string& folder) {
  std::error_code error;
  if (fs::exists(fs::path(folder) / "adapter_config.json", error)) return std::string(adapter_hint());
  std::vector<std::string> others;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".bin" || extension == ".pth" || extension == ".pt")
      others.push_back(it->path().filename().string());
  }
  if (others.empty()) return "";
  std::ranges::sort(others);
  return fmt::format(
      "; it has {}, which is not read: take the model's safetensors, or write them with save_pretrained(FOLDER, "
      "safe_serialization=True) of Hugging Face's transformers",
      others.front());
}

}  // namespace

std::string_view adapter_hint() {
  return "; it has adapter_config.json, so it is an adapter (LoRA): serve its base model and give the adapter with "
         "lora_paths";
}

Status Checkpoint::open_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return not_found(fmt::format("{} is no folder", folder));
  const auto in_dir = [&](std::string_view name) { return (fs::path(folder) / name).string(); };
  if (fs::exists(in_dir(kWeightFile), error)) return add_safetensors(in_dir(kWeightFile));
  const std::string index_path = in_dir(kWeightIndex);
  const bool has_index = fs::exists(index_path, error);
  std::map<std::string, std::string> weight_map;
  std::vector<std::string> shards;
  if (has_index) {
    weight_map = TRY(read_weight_map(index_path));
    std::set<std::string> unique;
    for (const auto& [tensor, shard] : weight_map) unique.insert(shard);
    shards.assign(unique.begin(), unique.end());
  } else {
    shards = TRY(shards_by_pattern(folder));
  }
  if (shards.empty()) {
    return not_found(
        fmt::format("{} holds no weights; accepted: model.safetensors, model.safetensors.index.json with its "
                    "shards, model-00001-of-0000n.safetensors and so on, or one GGUF file{}",
                    folder, what_is_there(folder)));
  }
  for (const std::string& shard : shards) {
    TRY(add_safetensors(in_dir(shard)).with_context("shard " + shard));
  }
  for (const auto& [tensor, shard] : weight_map) {
    const auto it = by_name_.find(tensor);
    if (it == by_name_.end()) {
      return data_loss(
          fmt::format("{}: tensor \"{}\" should be in {}, but no shard has it", index_path, tensor, shard));
    }
    const std::string& actual = files_[it->second.file].path;
    if (fs::path(actual).filename() != shard) {
      return data_loss(
          fmt::format("{}: tensor \"{}\" should be in {}, but is in {}", index_path, tensor, shard, actual));
    }
  }
  return ok_status();
}

Status Checkpoint::add_safetensors(const std::string& path) {
  SafetensorsFile file = TRY(SafetensorsFile::open(path));
  TensorFile added{.path = path, .tensors = {}, .mappings = {file.mapping()}};
  added.tensors = std::move(file).take_tensors();
  return add_file(std::move(added));
}

Status Checkpoint::add_file(TensorFile file) {
  files_.push_back(std::move(file));
  const TensorFile& added = files_.back();
  for (const StoredTensor& tensor : added.tensors) {
    const auto [it, inserted] = by_name_.emplace(tensor.name, Entry{&tensor, files_.size() - 1});
    if (!inserted) {
      return data_loss(fmt::format("tensor \"{}\" is in two shards: {} and {}", tensor.name,
                                   files_[it->second.file].path, added.path));
    }
    has_body_prefix_ |= tensor.name.starts_with(kBodyPrefix);
    total_bytes_ += tensor.num_elements() * stored_dtype_bytes(tensor.dtype);
  }
  return ok_status();
}

std::string_view Checkpoint::stored_name(std::string_view name) const {
  if (!has_body_prefix_ && name.starts_with(kBodyPrefix)) name.remove_prefix(kBodyPrefix.size());
  return name;
}

std::string Checkpoint::shown_name(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor != nullptr && !tensor->source.empty()) return tensor->source;
  if (tensor == nullptr)
    for (const TensorFile& file : files_)
      if (file.own_name) return file.own_name(name);
  return std::string(name);
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(stored_name(name));
  return it == by_name_.end() ? nullptr : it->second.view;
}

Result<StoredTensor> Checkpoint::get(std::string_view name, std::span<const StoredDtype> accepted) const {
  const std::string_view stored = stored_name(name);
  const auto it = by_name_.find(stored);
  if (it == by_name_.end()) {
    std::vector<std::string> near = nearest_names(stored, names());
    for (std::string& other : near) other = shown_name(other);
    return not_found(fmt::format("{}: tensor \"{}\" is missing; nearest of the {} there: {}", model_path_,
                                 shown_name(stored), by_name_.size(),
                                 near.empty() ? "none is near" : fmt::format("{}", fmt::join(near, ", "))));
  }
  const StoredTensor& view = *it->second.view;
  if (std::ranges::find(accepted, view.dtype) == accepted.end()) {
    std::vector<std::string_view> types;
    for (const StoredDtype dtype : accepted) types.push_back(stored_dtype_name(dtype));
    return unimplemented(fmt::format("{}: tensor \"{}\": dtype is {}; accepted: {}", files_[it->second.file].path,
                                     shown_name(stored), stored_dtype_name(view.dtype), fmt::join(types, ", ")));
  }
  return view;
}

Result<StoredTensor> Checkpoint::get(std::string_view name, std::span<const std::int64_t> expected_shape,
                                     std::span<const StoredDtype> accepted) const {
  const StoredTensor view = TRY(get(name, accepted));
  if (std::ranges::equal(view.shape, expected_shape)) return view;
  return invalid_argument(fmt::format("{}: tensor \"{}\": shape is {}; accepted: {}, by {}",
                                      files_[by_name_.find(view.name)->second.file].path, shown_name(view.name),
                                      shape_text(view.shape), shape_text(expected_shape),
                                      view.source.empty() ? "config.json" : "the metadata"));
}

Status Checkpoint::check_whole() const {
  for (const TensorFile& file : files_)
    for (const std::shared_ptr<const MappedFile>& mapping : file.mappings) TRY(mapping->check_whole());
  return ok_status();
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> result;
  result.reserve(by_name_.size());
  for (const auto& [name, entry] : by_name_) result.push_back(name);
  std::ranges::sort(result);
  return result;
}

}  // namespace tessera
