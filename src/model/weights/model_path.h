// The place of a model. Wherever a model's path is accepted, it may be the folder in Hugging Face layout, a
// config.json, which stands for its folder, or a GGUF file (gguf/gguf_model.h: find_gguf()).
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
