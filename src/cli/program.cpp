// Implements tessera_main() of tessera.h, which does what the command `tessera` does. The main() of that command calls
// it. Other programs can call it through the library.
#include <tessera.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/cli/run.h"
#include "tessera/cli/session/api_keys.h"
#include "tessera/runner/capture/registry.h"

int tessera_main(int argc, char** argv) {
  if (argc < 1 || argv == nullptr) return 2;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  tessera::cli::hide_api_keys({argv + 1, argv + argc});
  return tessera::cli::run(std::make_shared<tessera::Registry>(tessera::built_in_registry()), arguments);
}
