#include "tessera/plugin/probe.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

namespace tessera::plugin {
namespace {

using Clock = std::chrono::steady_clock;

// A pipe's two ends.
struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(int i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
};

void write_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(to, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// The first byte is the code; what follows is the message.
[[noreturn]] void run_child(const std::function<Status()>& work, int to) {
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(crash, SIG_DFL);
  const Status status = work();
  write_all(to, std::string(1, static_cast<char>(status.code())) + status.message());
  _exit(0);  // nothing of the parent's is flushed or destroyed here
}

// Until the child closes its end, or the time is over: false.
bool read_all(int from, std::string& answer, Clock::time_point end) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd ready{.fd = from, .events = POLLIN, .revents = 0};
    const int count = poll(&ready, 1, static_cast<int>(left));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return false;
    char bytes[4096];
    const ssize_t got = read(from, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    answer.append(bytes, static_cast<std::size_t>(got));
  }
}

int wait_for(pid_t child) {
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return state;
}

}  // namespace

Status run_in_child(const std::function<Status()>& work, std::chrono::milliseconds limit) {
  Pipe pipe;
  if (::pipe(pipe.ends) != 0) return internal_error(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) return resource_exhausted(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) run_child(work, pipe.ends[1]);
  pipe.close_end(1);

  std::string answer;
  const bool in_time = read_all(pipe.ends[0], answer, Clock::now() + limit);
  if (!in_time) kill(child, SIGKILL);
  const int state = wait_for(child);
  if (!in_time)
    return internal_error(
        fmt::format("it had not registered after {:.3g} seconds", std::chrono::duration<double>(limit).count()));
  if (WIFSIGNALED(state))
    return internal_error(fmt::format("it crashed while registering ({})", strsignal(WTERMSIG(state))));
  if (answer.empty())
    return internal_error(fmt::format("it ended the process while registering (exit code {})", WEXITSTATUS(state)));
  const auto code = static_cast<StatusCode>(answer[0]);
  return code == StatusCode::kOk ? ok_status() : Status(code, answer.substr(1));
}

}  // namespace tessera::plugin
