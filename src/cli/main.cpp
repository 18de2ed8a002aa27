#include <memory>
#include <string>
#include <vector>

#include "tessera/cli/api_keys.h"
#include "tessera/cli/run.h"
#include "tessera/runner/registry.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  tessera::cli::hide_api_keys({argv + 1, argv + argc});
  return tessera::cli::run(tessera::shared_built_ins(), arguments);
}
