#include <memory>
#include <string>
#include <vector>

#include "tessera/cli/run.h"
#include "tessera/runner/registry.h"

int main(int argc, char** argv) {
  return tessera::cli::run(tessera::shared_built_ins(), std::vector<std::string>(argv + 1, argv + argc));
}
