// Finds the folder and the config.json of a model. A model's path may be its folder in Hugging Face layout, or a
// config.json, which stands for its folder.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// Returns whether `path` is a folder. A path that cannot be examined (too long, no permission) counts as none; reading
// it gives the error.
bool is_folder(const std::filesystem::path& path);
// Returns the folder of config.json and of the files beside it.
std::string model_folder(const std::string& model_path);
// Returns the config.json itself, which need not exist.
std::filesystem::path config_file(const std::filesystem::path& model_path);

}  // namespace tessera
