#include "tessera/capi/errors.h"

#include <fmt/format.h>

#include <memory>

namespace tessera::capi {

tessera_code code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return TESSERA_OK;
    case StatusCode::kInvalidArgument: return TESSERA_INVALID_ARGUMENT;
    case StatusCode::kNotFound: return TESSERA_NOT_FOUND;
    case StatusCode::kFailedPrecondition: return TESSERA_FAILED_PRECONDITION;
    case StatusCode::kResourceExhausted: return TESSERA_RESOURCE_EXHAUSTED;
    case StatusCode::kUnimplemented: return TESSERA_UNIMPLEMENTED;
    case StatusCode::kDeviceLost: return TESSERA_DEVICE_LOST;
    case StatusCode::kDataLoss: return TESSERA_DATA_LOSS;
    case StatusCode::kCancelled: return TESSERA_CANCELLED;
    case StatusCode::kInternal: return TESSERA_INTERNAL;
  }
  return TESSERA_INTERNAL;
}

tessera_code code_of(const ApiError& error) {
  switch (error.http_status) {
    case 404: return TESSERA_NOT_FOUND;
    case 429: return TESSERA_RESOURCE_EXHAUSTED;
    case 501: return TESSERA_UNIMPLEMENTED;
    case 503: return TESSERA_DEVICE_LOST;
    default: return error.http_status < 500 ? TESSERA_INVALID_ARGUMENT : TESSERA_INTERNAL;
  }
}

tessera_code fail(tessera_error** error, tessera_code code, const std::string& message, const std::string& field) {
  if (error == nullptr) return code;
  auto made = std::make_unique<tessera_error>(tessera_error{code, message, field});
  *error = made.release();
  return code;
}

tessera_code fail(tessera_error** error, const Status& status) {
  return fail(error, code_of(status.code()), status.message());
}

tessera_code fail(tessera_error** error, const ApiError& api) {
  return fail(error, code_of(api), api.message, api.param);
}

tessera_code refuse_null(tessera_error** error, const char* function, const char* what) {
  return fail(error, TESSERA_INVALID_ARGUMENT, fmt::format("{}: {} is NULL", function, what));
}

tessera_code refuse_in_callback(tessera_error** error, const char* function) {
  return fail(error, TESSERA_FAILED_PRECONDITION,
              fmt::format("{} waits for the engine's thread and was called within a callback on it", function));
}

}  // namespace tessera::capi
