#include "tessera/cli/serve/stop_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

namespace tessera::cli {
namespace {

// The kernel adds up the values that are written to the eventfd. A stop signal adds 1, a hang-up adds kHangup, and the
// destructor adds kEnd, which ends the thread. The sum still tells how often each value was added, because no realistic
// number of smaller values adds up to a larger one.
constexpr std::uint64_t kHangup = std::uint64_t{1} << 24;
constexpr std::uint64_t kEnd = std::uint64_t{1} << 56;

// The descriptor that the signal handler writes to. A signal handler may do little more than call write().
std::atomic<int> signal_fd{-1};

void on_watched_signal(int signal) {
  const int saved = errno;
  const std::uint64_t unit = signal == SIGHUP ? kHangup : 1;
  [[maybe_unused]] const auto written = write(signal_fd.load(), &unit, sizeof unit);
  errno = saved;
}

}  // namespace

struct StopSignal::Impl {
  ~Impl() {
    for (const auto& [signal, action] : before) sigaction(signal, &action, nullptr);
    [[maybe_unused]] const auto written = write(fd, &kEnd, sizeof kEnd);
    if (thread.joinable()) thread.join();
    signal_fd.store(-1);
    close(fd);
  }

  void run() {
    std::uint64_t arrived = 0;
    for (int count = 0; read(fd, &arrived, sizeof arrived) == sizeof arrived || errno == EINTR;) {
      if (arrived >= kEnd) return;
      if (arrived >= kHangup) on_hangup();  // several hang-ups at once are handled as one
      for (arrived %= kHangup; arrived > 0; --arrived) on_signal(++count);
    }
  }

  int fd = -1;
  std::vector<std::pair<int, struct sigaction>> before;
  std::function<void(int)> on_signal;
  std::function<void()> on_hangup;
  std::thread thread;
};

StopSignal::StopSignal(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StopSignal::~StopSignal() = default;

Result<std::unique_ptr<StopSignal>> StopSignal::watch(const std::vector<int>& signals,
                                                      std::function<void(int)> on_signal,
                                                      std::function<void()> on_hangup) {
  auto impl = std::make_unique<Impl>();
  impl->on_signal = std::move(on_signal);
  impl->on_hangup = std::move(on_hangup);
  impl->fd = eventfd(0, EFD_CLOEXEC);
  if (impl->fd < 0) return internal_error(std::string("eventfd: ") + std::strerror(errno));
  signal_fd.store(impl->fd);
  impl->thread = std::thread([watching = impl.get()] { watching->run(); });
  struct sigaction action = {};
  action.sa_handler = on_watched_signal;
  action.sa_flags = SA_RESTART;
  std::vector<int> watched = signals;
  if (impl->on_hangup) watched.push_back(SIGHUP);
  for (const int signal : watched) {
    struct sigaction before = {};
    if (sigaction(signal, &action, &before) == 0) impl->before.emplace_back(signal, before);
  }
  return std::unique_ptr<StopSignal>(new StopSignal(std::move(impl)));
}

}  // namespace tessera::cli
