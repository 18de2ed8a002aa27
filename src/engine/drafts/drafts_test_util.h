// Engines and plans for tests of drafts.
#pragma once

#include <string>

#include "tessera/device/testing/described_device.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera::test {

// Returns options for a model of tests/data, such as "goldens/llama". Outputs with and without drafts can be compared,
// because with these options the results of a row have the same bits for any number of rows in a forward.
inline EngineOptions options_for_drafts(const std::string& model) {
  EngineOptions options = small_options();
  options.model_path = testing::data_path(model);
  options.deterministic = true;
  options.max_running_requests = 32;
  return options;
}

// Plans an engine for a device with 8 GiB.
inline Result<EnginePlan> plan_of(const EngineOptions& options) {
  testing::DescribedDevice device({.name = "test", .memory_bytes = std::int64_t{8} << 30, .threads = 2});
  return plan_engine(options, device);
}

}  // namespace tessera::test
