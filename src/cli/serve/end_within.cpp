#include "tessera/cli/serve/end_within.h"

#include <cstdlib>
#include <string>
#include <thread>

#include "tessera/cli/output.h"

namespace tessera::cli {

void end_within(std::chrono::milliseconds limit, const Status& error) {
  std::thread([limit, message = error.message()] {
    std::this_thread::sleep_for(limit);
    write_last_error(message);
    std::_Exit(1);
  }).detach();
}

}  // namespace tessera::cli
