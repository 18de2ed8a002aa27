// Where a model lies. Wherever a path of one is taken, it may be the folder in Hugging Face layout or a config.json,
// whose folder is meant then.
#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// Whether there is a folder. What cannot be examined (too long, no permission) is none; reading it gives the error.
bool is_folder(const std::filesystem::path& path);
// The folder of config.json and of what lies beside it.
std::string model_folder(const std::string& model_path);
// The config.json itself, which need not exist.
std::filesystem::path config_file(const std::filesystem::path& model_path);

}  // namespace tessera
