// Makes the error codes and error objects that functions of the C interface return.
#pragma once

#include <tessera.h>

#include <exception>
#include <new>
#include <string>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"

struct tessera_error {
  tessera_code code = TESSERA_OK;
  std::string message;
  std::string field;  // the wrong field of a request's body; "": none
};

namespace tessera::capi {

tessera_code code_of(StatusCode code);
// Returns the code that belongs to the HTTP status of the error.
tessera_code code_of(const ApiError& error);

// Sets *error and returns the code. Sets nothing if `error` is null or memory ran out.
tessera_code fail(tessera_error** error, tessera_code code, const std::string& message, const std::string& field = {});
tessera_code fail(tessera_error** error, const Status& status);
tessera_code fail(tessera_error** error, const ApiError& api);
// Returns the error for a null pointer: "<function>: <what> is NULL".
tessera_code refuse_null(tessera_error** error, const char* function, const char* what);
// Returns the error for a function that waits for an engine's thread and was called within a callback.
tessera_code refuse_in_callback(tessera_error** error, const char* function);

// Runs `body`, which returns a tessera_code. An exception becomes an error.
template <class Body>
tessera_code guarded(tessera_error** error, const Body& body) noexcept {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return fail(error, TESSERA_RESOURCE_EXHAUSTED, "out of memory");
    } catch (const std::exception& e) {
      return fail(error, TESSERA_INTERNAL, e.what());
    }
  } catch (...) {
    return TESSERA_INTERNAL;
  }
}

}  // namespace tessera::capi
