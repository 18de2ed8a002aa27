#include "tessera/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace tessera {

// A mapping in the list that the signal handler reads. Entries are reused but never freed, so that the handler can walk
// the list at any time.
struct MappedRange {
  std::atomic<std::uintptr_t> begin = 0;  // 0: unused
  std::atomic<std::size_t> size = 0;
  std::atomic<bool> lost = false;  // whether a page of the mapping could not be read
  MappedRange* next = nullptr;
};

namespace {

std::atomic<MappedRange*> all_ranges = nullptr;
std::mutex ranges_mutex;
std::size_t page_size = 0;
struct sigaction other_action = {};  // the action for SIGBUS that on_missing_page() has replaced

static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "the handler reads these");

// Does what the process would do without this handler. If this function returns, the access that faulted is repeated
// and faults again.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((other_action.sa_flags & SA_SIGINFO) != 0) {
    other_action.sa_sigaction(signal, info, context);
  } else if (other_action.sa_handler == SIG_DFL || other_action.sa_handler == SIG_IGN) {
    std::signal(signal, SIG_DFL);
  } else {
    other_action.sa_handler(signal);
  }
}

// Replaces the unreadable page and all later pages of the mapping by zeros. This needs only mmap, which is a plain
// system call and therefore safe in a signal handler. Faults outside of the mappings go to pass_on().
void on_missing_page(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (MappedRange* range = all_ranges.load(); range != nullptr; range = range->next) {
    const std::uintptr_t begin = range->begin.load();
    const std::size_t size = range->size.load();
    if (begin == 0 || address < begin || address - begin >= size) continue;
    const std::size_t in_page = address % page_size;
    void* const page = static_cast<std::byte*>(info->si_addr) - in_page;
    if (::mmap(page, begin + size - (address - in_page), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      break;
    range->lost.store(true);
    errno = error;
    return;
  }
  pass_on(signal, info, context);
}

void install_handler() {
  page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action = {};
  action.sa_sigaction = on_missing_page;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &other_action);
}

MappedRange* add_range(const void* begin, std::size_t size) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  const std::lock_guard lock(ranges_mutex);
  MappedRange* range = all_ranges.load();
  while (range != nullptr && range->begin.load() != 0) range = range->next;
  if (range == nullptr) {
    range = new MappedRange;
    range->next = all_ranges.load();
    all_ranges.store(range);
  }
  range->lost.store(false);
  range->size.store(size);
  range->begin.store(reinterpret_cast<std::uintptr_t>(begin));
  return range;
}

void remove_range(MappedRange* range) {
  const std::lock_guard lock(ranges_mutex);
  range->begin.store(0);
}

Status system_error(const char* what, const std::string& path) {
  const int error = errno;
  const std::string message = fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
  return error == ENOENT ? not_found(message) : data_loss(message);
}

struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error("open", path);
  const Descriptor descriptor{fd};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("stat", path);
  if (!S_ISREG(info.st_mode)) return data_loss(fmt::format("{} is no regular file", path));
  std::shared_ptr<MappedFile> file(new MappedFile(path));
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size == 0) return std::shared_ptr<const MappedFile>(std::move(file));

  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return system_error("map", path);
  ::madvise(address, size, MADV_SEQUENTIAL);  // only a hint; failure is harmless
  file->bytes_ = {static_cast<const std::byte*>(address), size};
  file->range_ = add_range(address, size);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (range_ == nullptr) return;
  remove_range(range_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Status MappedFile::check_whole() const {
  if (range_ == nullptr || !range_->lost.load()) return ok_status();
  return data_loss(fmt::format(
      "{} became shorter while it was read: it had {} bytes; accepted: a file that stays as it is until all is loaded",
      path_, bytes_.size()));
}

}  // namespace tessera
