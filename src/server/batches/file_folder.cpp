#include "tessera/server/batches/file_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "tessera/base/open_file.h"
#include "tessera/base/write_file.h"

namespace tessera {

Result<FileFolder> FileFolder::open(const std::filesystem::path& path) {
  TRY(make_folder(path / "files"));
  TRY(make_folder(path / "batches"));
  const std::filesystem::path lock_path = path / "lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
  if (lock < 0) return file_error("open", lock_path);
  FileFolder folder(path, lock);
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return folder;
  if (errno != EWOULDBLOCK) return file_error("lock", lock_path);
  return invalid_argument(fmt::format("{} is in use by another server; accepted: a folder for each", path.string()));
}

FileFolder::~FileFolder() {
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace tessera
