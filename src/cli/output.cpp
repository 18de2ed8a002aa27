#include "tessera/cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

namespace tessera::cli {

Status write_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written) return ok_status();
  return data_loss(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
}

void write_error(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void write_last_error(std::string_view message) {
  // The mutex is held during the write. A caller that finds is_written set may end the process next, so it must wait
  // here until the first caller has finished writing.
  static std::mutex mutex;
  static bool is_written = false;
  const std::lock_guard lock(mutex);
  if (!std::exchange(is_written, true)) write_error(fmt::format("tessera: error: {}\n", message));
}

}  // namespace tessera::cli
