// Opens the plugin's device inside an engine, through the registry that plugins add to.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tessera/plugin/load.h"
#include "tessera/runner/capture/registry.h"

namespace opencl_test {

// There is one registry for the process.
inline const tessera::Result<std::shared_ptr<const tessera::Registry>>& registry() {
  static const auto loaded = tessera::plugin::load_plugins(std::vector<std::string>{TESSERA_OPENCL_LIBRARY});
  return loaded;
}

inline tessera::Result<std::unique_ptr<tessera::Device>> open_device() {
  if (!registry().ok()) return registry().status();
  return (*registry())->devices.open("opencl");
}

// Returns why a test that needs the device must be skipped; null if the device exists. If CI is set, a missing device
// is an error.
inline const char* why_no_device() {
  static const std::string why = [] {
    const auto device = open_device();
    const bool may_lack = std::getenv("CI") == nullptr;
    return may_lack && device.status().code() == tessera::StatusCode::kNotFound ? device.status().message()
                                                                                : std::string();
  }();
  return why.empty() ? nullptr : why.c_str();
}

}  // namespace opencl_test
