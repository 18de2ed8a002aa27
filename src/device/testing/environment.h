// Gives the name of the device on which tests run. An environment variable can change it.
#pragma once

#include <string>

#include "tessera/base/testing/paths.h"

namespace tessera::testing {

// Returns TESSERA_TEST_DEVICE, or "cpu" if it is not set.
inline std::string test_device_name() { return environment_or("TESSERA_TEST_DEVICE", "cpu"); }

}  // namespace tessera::testing
