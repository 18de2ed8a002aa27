// The device that tests run on, and where they find their data: what the environment says.
#pragma once

#include <string>

#include "tessera/base/testing/paths.h"

namespace tessera::testing {

// "cpu", or what TESSERA_TEST_DEVICE says.
inline std::string test_device_name() { return environment_or("TESSERA_TEST_DEVICE", "cpu"); }

}  // namespace tessera::testing
