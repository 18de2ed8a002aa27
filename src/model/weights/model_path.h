// Finds a model's folder and config.json from the model's path. The path names a folder in Hugging Face's layout, or
// the config.json in such a folder, or a GGUF file (find_gguf() in gguf/gguf_model.h).
#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// Returns whether `path` is a folder. If that cannot be determined (path too long, no permission), returns false. The
// code that reads the path then reports the error.
bool is_folder(const std::filesystem::path& path);
// Returns whether `path`, which comes from a file of a model, stays inside the model's folder: it is relative, and no
// part of it is "..".
bool stays_inside(const std::filesystem::path& path);
// Returns the folder that contains config.json and its companion files.
std::string model_folder(const std::string& model_path);
// Returns the path of config.json, which need not exist.
std::filesystem::path config_file(const std::filesystem::path& model_path);

}  // namespace tessera
