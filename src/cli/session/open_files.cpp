#include "tessera/cli/session/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace tessera::cli {

void allow_open_files() {
  constexpr rlim_t kEnough = 1 << 18;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, connections beyond the old limit are refused
}

}  // namespace tessera::cli
