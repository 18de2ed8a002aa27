// Finds the data files of this folder's tests: the files in the repository, and real tokenizers if a directory of
// shared data exists. For tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/strong_id.h"
#include "tessera/base/testing/paths.h"

namespace tessera::test {

inline std::string own_data(const std::string& name) { return testing::data_path("text/" + name); }

// Returns the path of a file of the shared data; "" if there is none.
inline std::string shared_data(const std::string& name) {
  const std::string path = testing::shared_path("data/" + name);
  return std::filesystem::exists(path) ? path : "";
}

// Unpacks the shared file `name` + ".xz" into the temporary directory and returns the path; "" if that fails.
inline std::string unpacked_shared_data(const std::string& name) {
  const std::string packed = shared_data(name + ".xz");
  if (packed.empty()) return "";
  const std::filesystem::path out = std::filesystem::temp_directory_path() / "tessera_text_test" /
                                    (name + "." + std::to_string(std::filesystem::file_size(packed)));
  std::filesystem::create_directories(out.parent_path());
  if (!std::filesystem::exists(out)) {
    // Writes to another name and renames the file, so that other test programs that run at the same time see a whole
    // file or none.
    const std::string part = out.string() + "." + std::to_string(std::random_device{}());
    if (std::system(("xz -dc '" + packed + "' > '" + part + "'").c_str()) != 0) return "";
    std::filesystem::rename(part, out);
  }
  return out.string();
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<int> values(const std::vector<TokenId>& ids) {
  std::vector<int> out;
  for (const TokenId id : ids) out.push_back(id.value());
  return out;
}

inline std::vector<int> values(const Json& array) {
  std::vector<int> out;
  for (const Json& item : array.as_array()) out.push_back(static_cast<int>(item.as_int()));
  return out;
}

inline std::vector<TokenId> ids_of(const std::vector<int>& values) {
  std::vector<TokenId> out;
  for (const int value : values) out.emplace_back(value);
  return out;
}

}  // namespace tessera::test
