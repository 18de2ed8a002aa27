// Reads the bodies of POST /v1/load_lora_adapter and POST /v1/unload_lora_adapter. SGLang and vLLM have the same
// routes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/adapters/adapter_pool.h"
#include "tessera/model/adapters/adapter.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct LoadAdapterFields {
  AdapterLoad load{};
  std::string path{};
};
// Reads "lora_name", "lora_path", "load_inplace" and "pinned".
ApiResult<LoadAdapterFields> read_load_adapter_fields(const ServedModel& model, std::string_view body);

struct LoadAdapterRequest {
  AdapterLoad load{};
  std::vector<std::shared_ptr<const Adapter>> contents{};  // one copy for each of ServedAdapters::devices()
};

// Reads the fields, and loads the adapter from its folder. Errors: 400 if the server serves no adapters, for a wrong
// field, for a path outside the allowed folder, and for an adapter that cannot be served (Adapter::load).
ApiResult<LoadAdapterRequest> read_load_adapter(const ServedModel& model, std::string_view body);

struct UnloadAdapterRequest {
  std::string name;
};
// Reads "lora_name".
ApiResult<UnloadAdapterRequest> read_unload_adapter(const ServedModel& model, std::string_view body);

// Return the bytes that the requests hold (work/request_memory.h). The memory of the loaded adapter is not counted,
// because the adapter outlives the request.
inline std::int64_t held_bytes(const LoadAdapterRequest& request, std::int64_t, std::int64_t) {
  return static_cast<std::int64_t>(request.load.name.capacity());
}
inline std::int64_t held_bytes(const UnloadAdapterRequest& request, std::int64_t, std::int64_t) {
  return static_cast<std::int64_t>(request.name.capacity());
}

}  // namespace tessera
