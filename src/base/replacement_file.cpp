#include "tessera/base/replacement_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace tessera {

ReplacementFile::ReplacementFile(const std::string& path) : path_(path) {
  static std::atomic<unsigned> counter{0};
  temporary_ = fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter.fetch_add(1));
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) first_error_ = failed("create");
}

ReplacementFile::~ReplacementFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status ReplacementFile::kept(const Status& error) {
  const std::lock_guard lock(mutex_);
  if (first_error_.ok()) first_error_ = error;
  return first_error_;
}

Status ReplacementFile::write(std::int64_t offset, std::span<const std::byte> data) {
  TRY(kept(ok_status()));
  return kept(write_all(offset, data));
}

Status ReplacementFile::write_all(std::int64_t offset, std::span<const std::byte> data) const {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // the most bytes that one call writes
  while (!data.empty()) {
    const ssize_t written = ::pwrite(fd_, data.data(), std::min(data.size(), kMostBytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed("write");
    offset += written;
    data = data.subspan(static_cast<std::size_t>(written));
  }
  return ok_status();
}

Status ReplacementFile::commit() {
  TRY(kept(ok_status()));
  if (::fsync(fd_) != 0) return kept(failed("write"));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return kept(failed("rename"));
  ::close(fd_);
  fd_ = -1;
  return ok_status();
}

Status ReplacementFile::failed(const char* what) const {
  const std::string message = fmt::format("cannot {} {} for {}: {}", what, temporary_, path_, std::strerror(errno));
  return errno == ENOSPC || errno == EDQUOT ? resource_exhausted(message) : data_loss(message);
}

}  // namespace tessera
