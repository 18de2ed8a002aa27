#include "tessera/plugin/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>

namespace tessera::plugin {
namespace {

using Clock = std::chrono::steady_clock;

// The two ends of a pipe.
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

// Runs the work in the child process. Writes the result to `to`: one byte with the Status's code, then the message.
[[noreturn]] void run_child(const std::function<Status()>& work, int to) {
  for (const int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) std::signal(crash, SIG_DFL);
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};  // no core file, because writing one can exceed the time limit
  (void)setrlimit(RLIMIT_CORE, &no_core);
  const Status status = work();
  write_all(to, std::string(1, static_cast<char>(status.code())) + status.message());
  _exit(0);  // the child must not flush or destroy objects of the parent
}

// Waits up to `wait_ms` for data and appends them to `answer`. Closes the read end when all writers have closed their
// end. Returns false if no data came.
bool read_some(Pipe& pipe, int wait_ms, std::string& answer) {
  pollfd ready{.fd = pipe.ends[0], .events = POLLIN, .revents = 0};  // poll() ignores a descriptor of -1 and only waits
  if (poll(&ready, 1, wait_ms) <= 0) return false;
  char bytes[4096];
  const ssize_t got = read(pipe.ends[0], bytes, sizeof(bytes));
  if (got < 0 && errno == EINTR) return true;
  if (got > 0) answer.append(bytes, static_cast<std::size_t>(got));
  if (got <= 0) pipe.close_end(0);
  return got > 0;
}

// Waits for the child and returns the child's exit state. `options` are those of waitpid(). With WNOHANG, returns
// nothing if the child still runs.
std::optional<int> wait_for(pid_t child, int options) {
  int state = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &state, options)) < 0 && errno == EINTR) {
  }
  return ended == 0 ? std::nullopt : std::optional(state);
}

// Appends the child's output to `answer` and returns the child's exit state. Returns nothing if the child still runs
// at the time `end`.
// Polls the child's state instead of waiting for end-of-file on the pipe. A process that another thread has forked may
// hold the pipe open after the child has ended.
std::optional<int> read_until_end(pid_t child, Pipe& pipe, std::string& answer, Clock::time_point end) {
  constexpr int kLookMs = 5;  // interval between checks whether the child has ended
  while (Clock::now() < end) {
    const std::optional<int> state = wait_for(child, WNOHANG);
    if (state) {
      while (read_some(pipe, 0, answer)) {  // the child has ended, so all its output is in the pipe
      }
      return state;
    }
    (void)read_some(pipe, kLookMs, answer);  // it is no error if there is no output yet
  }
  return std::nullopt;
}

}  // namespace

Status run_in_child(const std::function<Status()>& work, std::chrono::milliseconds limit) {
  Pipe pipe;
  if (pipe2(pipe.ends, O_CLOEXEC) != 0) return internal_error(fmt::format("pipe: {}", std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) return resource_exhausted(fmt::format("fork: {}", std::strerror(errno)));
  if (child == 0) run_child(work, pipe.ends[1]);
  pipe.close_end(1);

  std::string answer;
  const std::optional<int> state = read_until_end(child, pipe, answer, Clock::now() + limit);
  if (!state) {
    kill(child, SIGKILL);
    (void)wait_for(child, 0);  // the child was killed, so its state has no meaning
    return internal_error(
        fmt::format("it had not registered after {:.3g} seconds", std::chrono::duration<double>(limit).count()));
  }
  if (WIFSIGNALED(*state))
    return internal_error(fmt::format("it crashed while registering ({})", strsignal(WTERMSIG(*state))));
  if (answer.empty())
    return internal_error(fmt::format("it ended the process while registering (exit code {})", WEXITSTATUS(*state)));
  const auto code = static_cast<StatusCode>(answer[0]);
  return code == StatusCode::kOk ? ok_status() : Status(code, answer.substr(1));
}

}  // namespace tessera::plugin
