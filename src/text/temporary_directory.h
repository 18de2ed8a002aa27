// A temporary directory of its own for each object, removed at the end. For tests only.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace tessera::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_(std::filesystem::temp_directory_path() / ("tessera_text_" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  void write(const char* name, const std::string& text) const { std::ofstream(path_ / name, std::ios::binary) << text; }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::test
