// A value, or the ApiError that the client gets instead. TRY accepts an ApiResult like a Result. In a function that
// returns an ApiResult, TRY also accepts a Result or Status, whose error becomes api_error(status).
#pragma once

#include <cassert>
#include <optional>
#include <utility>
#include <variant>

#include "tessera/base/status.h"
#include "tessera/server/http/api_error.h"

namespace tessera {

template <class T>
class [[nodiscard]] ApiResult {
 public:
  // NOLINTBEGIN(google-explicit-constructor): a function that returns an ApiResult can return a value or an error
  ApiResult(T v) : value_(std::move(v)) {}
  ApiResult(ApiError error) : error_(std::move(error)) {}
  ApiResult(const Status& status) : error_(api_error(status)) {}
  // NOLINTEND(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  // Precondition: !ok().
  ApiError& error() { return error_; }
  const ApiError& error() const { return error_; }
  // Precondition: ok().
  T& operator*() & {
    assert(ok());
    return *value_;
  }
  T&& operator*() && {
    assert(ok());
    return *std::move(value_);
  }
  T* operator->() { return &*value_; }

 private:
  ApiError error_;
  std::optional<T> value_;
};

// Success without a value, or an error.
using ApiStatus = ApiResult<std::monostate>;
inline ApiStatus api_ok() { return std::monostate(); }

namespace internal {
template <class T>
ApiError take_status(ApiResult<T>&& r) {
  return std::move(r.error());
}
template <class T>
T take_value(ApiResult<T>&& r) {
  return *std::move(r);
}
}  // namespace internal

}  // namespace tessera
