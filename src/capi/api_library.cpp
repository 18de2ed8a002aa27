// Implements the library, error and memory functions of tessera.h.
#include <tessera.h>

#include <cstdlib>
#include <memory>

#include "tessera/capi/errors.h"

uint32_t tessera_api_version(void) { return TESSERA_API_VERSION; }
const char* tessera_version(void) { return TESSERA_VERSION; }

const char* tessera_code_name(int code) {
  switch (code) {
    case TESSERA_OK: return "ok";
    case TESSERA_INVALID_ARGUMENT: return "invalid argument";
    case TESSERA_NOT_FOUND: return "not found";
    case TESSERA_FAILED_PRECONDITION: return "failed precondition";
    case TESSERA_RESOURCE_EXHAUSTED: return "resource exhausted";
    case TESSERA_UNIMPLEMENTED: return "unimplemented";
    case TESSERA_DEVICE_LOST: return "device lost";
    case TESSERA_DATA_LOSS: return "data loss";
    case TESSERA_CANCELLED: return "cancelled";
    case TESSERA_INTERNAL: return "internal";
    case TESSERA_TIMEOUT: return "timeout";
    default: return "unknown";
  }
}

tessera_code tessera_error_code(const tessera_error* error) { return error == nullptr ? TESSERA_OK : error->code; }
const char* tessera_error_message(const tessera_error* error) { return error == nullptr ? "" : error->message.c_str(); }
const char* tessera_error_field(const tessera_error* error) { return error == nullptr ? "" : error->field.c_str(); }
void tessera_error_free(tessera_error* error) { const std::unique_ptr<tessera_error> owned(error); }
void tessera_free(void* memory) { std::free(memory); }
