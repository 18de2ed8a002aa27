#include <string>
#include <vector>

#include "tessera/cli/run.h"

int main(int argc, char** argv) { return tessera::cli::run(std::vector<std::string>(argv + 1, argv + argc)); }
