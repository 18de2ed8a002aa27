#include "tessera/base/write_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tessera/base/open_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Returns the path of a new file beside `path`. No other writer uses its name.
fs::path beside(const fs::path& path) {
  static std::atomic<int> counter{0};
  return path.string() + fmt::format(".{}-{}.new", ::getpid(), counter++);
}

}  // namespace

Status write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return not_found(fmt::format("{}: {}", path, std::strerror(errno)));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return data_loss(fmt::format("{}: {}", path, std::strerror(errno)));
  return ok_status();
}

Status replace_file(const fs::path& path, std::string_view content) {
  const fs::path temporary = beside(path);
  const auto write = [&]() -> Status {
    OpenFile file = TRY(OpenFile::open(temporary));
    TRY(file.truncate(0));
    TRY(file.write(content));
    return file.sync();
  };
  Status status = write();
  if (status.ok()) status = rename_file(temporary, path);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Status replace_link(const fs::path& path, const fs::path& target) {
  const fs::path temporary = beside(path);
  ::unlink(temporary.c_str());  // an earlier process with the same process id may have left such a file
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return file_error("make the link", temporary);
  return rename_file(temporary, path);
}

Status rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return file_error("write", to);
  return ok_status();
}

Status make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return ok_status();
  errno = error.value();
  return file_error("make the folder", path);
}

}  // namespace tessera
