#include "tessera/cli/checkpoint_folder.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <system_error>

#include "tessera/base/write_file.h"
#include "tessera/cli/table.h"
#include "tessera/model/weights/weight_map.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

bool is_of_a_checkpoint(const std::string& name) {
  return name == "config.json" || name == kWeightFile || name == kWeightIndex || shard_number(name) ||
         (name.starts_with("model") && name.find(".safetensors.tmp-") != std::string::npos);
}

// Returns the folder, or its nearest parent that exists.
fs::path existing(fs::path folder) {
  std::error_code error;
  folder = fs::absolute(folder, error);
  while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder;
}

}  // namespace

Result<CheckpointFolder> CheckpointFolder::check(const std::string& folder, const fs::path& config, bool overwrite) {
  CheckpointFolder checked;
  checked.folder_ = folder;
  std::error_code error;
  checked.exists_ = fs::exists(folder, error);
  if (checked.exists_) {
    if (!fs::is_directory(folder, error)) return invalid_argument(fmt::format("{} is no folder", folder));
    const fs::path config_folder = config.parent_path().empty() ? "." : config.parent_path();
    if (fs::equivalent(folder, config_folder, error))
      return invalid_argument(fmt::format("{} is the folder of {} itself; give another one", folder, config.string()));
    bool empty = true;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      empty = false;
      if (!is_of_a_checkpoint(it->path().filename().string())) continue;
      checked.old_files_.push_back(it->path());
      std::error_code unknown;
      const std::uintmax_t bytes = fs::file_size(it->path(), unknown);
      if (!unknown) checked.free_bytes_ += static_cast<std::int64_t>(bytes);
    }
    if (error) return not_found(fmt::format("cannot list {}: {}", folder, error.message()));
    if (!empty && !overwrite) {
      return invalid_argument(fmt::format(
          "{} is not empty; give a new folder, or --overwrite, which replaces the checkpoint in it", folder));
    }
  }
  const fs::space_info space = fs::space(existing(checked.folder_), error);
  if (error) return not_found(fmt::format("cannot tell the free space of {}: {}", folder, error.message()));
  checked.free_bytes_ += static_cast<std::int64_t>(space.available);
  return checked;
}

Status CheckpointFolder::check_space(std::int64_t bytes) const {
  if (bytes <= free_bytes_) return ok_status();
  return resource_exhausted(fmt::format("{} has room for {}; the checkpoint needs {}, {} more", folder_.string(),
                                        bytes_text(free_bytes_), bytes_text(bytes), bytes_text(bytes - free_bytes_)));
}

Status CheckpointFolder::begin() const {
  TRY(make_folder(folder_));
  for (const fs::path& file : old_files_) {
    std::error_code error;
    fs::remove(file, error);
    if (error) return data_loss(fmt::format("cannot remove {}: {}", file.string(), error.message()));
  }
  return ok_status();
}

void CheckpointFolder::undo() const {
  std::error_code not_empty;
  if (!exists_) fs::remove(folder_, not_empty);
}

std::vector<fs::path> tokenizer_files(const fs::path& folder) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
      "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json"};
  std::vector<fs::path> files;
  std::error_code error;
  for (const std::string_view name : kNames)
    if (fs::is_regular_file(folder / name, error)) files.push_back(folder / name);
  return files;
}

}  // namespace tessera::cli
