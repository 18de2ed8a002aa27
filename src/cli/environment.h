// Environment variables of SGLang's that have no effect here.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tessera::cli {

// A warning for each variable that asks for something by a way that is not taken here, naming what to use. `get(name)`
// is a variable's value, null where it is not set; "", "0" and "false" ask for nothing.
std::vector<std::string> environment_warnings(const std::function<const char*(const char*)>& get);
// Of this process's environment.
std::vector<std::string> environment_warnings();

}  // namespace tessera::cli
