#include "tessera/base/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tessera {

namespace fs = std::filesystem;

Status file_error(std::string_view doing, const fs::path& path) {
  const int error = errno;
  std::string message = fmt::format("cannot {} {}: {}", doing, path.string(), std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return resource_exhausted(std::move(message));
  return not_found(std::move(message));
}

Result<OpenFile> OpenFile::open(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return file_error("open", path);
  return OpenFile(fd, path);
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::int64_t> OpenFile::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return file_error("look at", path_);
  return static_cast<std::int64_t>(info.st_size);
}

Result<std::int64_t> OpenFile::read(char* to, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd_, to + done, size - done);
    if (got == 0) break;
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      return file_error("read", path_);
    }
  }
  return static_cast<std::int64_t>(done);
}

Status OpenFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno != EINTR) {
      return file_error("write", path_);
    }
  }
  return ok_status();
}

Status OpenFile::truncate(std::int64_t size) {
  if (::ftruncate(fd_, size) != 0 || ::lseek(fd_, size, SEEK_SET) < 0) return file_error("cut", path_);
  return ok_status();
}

Status OpenFile::sync() {
  if (::fsync(fd_) != 0) return file_error("write", path_);
  return ok_status();
}

Status OpenFile::lock(void (*on_wait)(const fs::path&)) {
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return ok_status();
  if (errno == EWOULDBLOCK) {
    on_wait(path_);
    while (::flock(fd_, LOCK_EX) != 0) {
      if (errno != EINTR) return file_error("lock", path_);
    }
    return ok_status();
  }
  return file_error("lock", path_);
}

}  // namespace tessera
