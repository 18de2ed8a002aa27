#include "tessera/cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tessera::cli {

Status write_output(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (std::fflush(stdout) == 0 && written) return ok_status();
  return data_loss(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
}

void write_error(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace tessera::cli
