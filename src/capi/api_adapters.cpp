// Implements the adapter functions of tessera.h.
#include <fmt/format.h>
#include <tessera.h>

#include <memory>

#include "tessera/capi/errors.h"
#include "tessera/capi/handles.h"

namespace tessera::capi {
namespace {

// Returns a shared pointer. It keeps the adapters alive if another thread closes the engine while the caller uses them.
std::shared_ptr<AdapterCalls> adapters_of(const tessera_engine* engine) { return engine->adapters; }

tessera_code answer(tessera_error** error, const Result<ApiStatus>& changed) {
  if (!changed.ok()) return fail(error, changed.status());
  return changed->ok() ? TESSERA_OK : fail(error, changed->error());
}

}  // namespace
}  // namespace tessera::capi

using namespace tessera;
using namespace tessera::capi;

tessera_code tessera_lora_load(tessera_engine* engine, const char* body, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_lora_load", "engine");
    if (body == nullptr) return refuse_null(error, "tessera_lora_load", "body");
    if (in_callback()) return refuse_in_callback(error, "tessera_lora_load");
    return answer(error, adapters_of(engine)->load(body));
  });
}

tessera_code tessera_lora_unload(tessera_engine* engine, const char* name, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_lora_unload", "engine");
    if (name == nullptr) return refuse_null(error, "tessera_lora_unload", "name");
    if (in_callback()) return refuse_in_callback(error, "tessera_lora_unload");
    return answer(error, adapters_of(engine)->unload(name));
  });
}

tessera_code tessera_lora_wait(tessera_engine* engine, const char* name, int64_t timeout_ms, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_lora_wait", "engine");
    if (name == nullptr) return refuse_null(error, "tessera_lora_wait", "name");
    if (in_callback()) return refuse_in_callback(error, "tessera_lora_wait");
    const Result<bool> ended = adapters_of(engine)->wait(name, timeout_ms);
    if (!ended.ok()) return fail(error, ended.status());
    if (*ended) return TESSERA_OK;
    return fail(error, TESSERA_TIMEOUT,
                fmt::format("requests still use the unloaded adapter \"{}\" after {} ms", name, timeout_ms));
  });
}

tessera_code tessera_lora_list(tessera_engine* engine, char** json, tessera_error** error) {
  return guarded(error, [&] {
    if (engine == nullptr) return refuse_null(error, "tessera_lora_list", "engine");
    if (json == nullptr) return refuse_null(error, "tessera_lora_list", "json");
    if (in_callback()) return refuse_in_callback(error, "tessera_lora_list");
    const Result<std::string> listed = adapters_of(engine)->list();
    if (!listed.ok()) return fail(error, listed.status());
    *json = copy_out(*listed);
    return TESSERA_OK;
  });
}
