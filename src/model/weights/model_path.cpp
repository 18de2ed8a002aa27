#include "tessera/model/weights/model_path.h"

#include <algorithm>

#include <system_error>

namespace tessera {

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool stays_inside(const std::filesystem::path& path) {
  return path.is_relative() && std::ranges::find(path, "..") == path.end();
}

std::string model_folder(const std::string& model_path) {
  if (is_folder(model_path)) return model_path;
  const std::string parent = std::filesystem::path(model_path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::filesystem::path config_file(const std::filesystem::path& model_path) {
  return is_folder(model_path) ? model_path / "config.json" : model_path;
}

}  // namespace tessera
