// Errors are values: every function that can fail on input, files, memory or a device returns Status or Result<T>.
// Nothing on the request path throws or aborts.
//
//   Result<Config> config = Config::read(path);
//   if (!config.ok()) return config.status().with_context("reading the model");
//   // or, in a function that itself returns Status or Result<U>:
//   Config config = TRY(Config::read(path));
//
// A message says what went wrong, names the wrong value, and says what is accepted. with_context() prepends what the
// caller was doing, so the outermost caller comes first.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tessera {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,     // wrong input: a flag, a file's content, a request
  kNotFound,            // a file, tensor, model or entry is missing
  kFailedPrecondition,  // valid input at the wrong time (allocation while recording, use after close)
  kResourceExhausted,   // memory, pages or slots ran out; a smaller request would work
  kUnimplemented,       // valid, but not supported by this engine
  kDeviceLost,          // the device is unusable until the process restarts
  kDataLoss,            // stored data is corrupt
  kCancelled,           // the requester no longer wants the result
  kInternal,            // a bug in this program
};

// Returns the code in words: "invalid argument", "resource exhausted", ….
std::string_view status_code_name(StatusCode code);

// An ok Status is one null pointer. What goes wrong is on the heap, and the code for it is not inline, so that a
// function which only hands a Status on stays small.
class [[nodiscard]] Status {
 public:
  Status() = default;                            // ok
  Status(StatusCode code, std::string message);  // Precondition: code != kOk.
  Status(Status&& other) noexcept : failure_(std::exchange(other.failure_, nullptr)) {}
  Status(const Status& other) : failure_(other.ok() ? nullptr : copy(*other.failure_)) {}
  Status& operator=(Status other) noexcept {
    std::swap(failure_, other.failure_);
    return *this;
  }
  ~Status() {
    if (!ok()) [[unlikely]]
      free(failure_);
  }

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failure_->code; }
  const std::string& message() const;  // empty if ok; valid until this Status changes

  // Prepends what was attempted: "<context>: <message>". An ok Status is unchanged.
  Status with_context(std::string_view context) &&;
  Status with_context(std::string_view context) const&;

  // Returns "<code name>: <message>", for logs.
  std::string to_string() const;

 private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  [[gnu::cold]] static Failure* copy(const Failure& failure);
  [[gnu::cold]] static void free(Failure* failure) noexcept;

  Failure* failure_ = nullptr;  // owned
};

inline Status ok_status() { return {}; }
Status invalid_argument(std::string message);
Status not_found(std::string message);
Status failed_precondition(std::string message);
Status resource_exhausted(std::string message);
Status unimplemented(std::string message);
Status device_lost(std::string message);
Status data_loss(std::string message);
Status cancelled(std::string message);
Status internal_error(std::string message);

// A value, or the Status (never ok) that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  static_assert(!std::is_reference_v<T> && !std::is_same_v<std::remove_cv_t<T>, Status>);

  // NOLINTBEGIN(google-explicit-constructor): a function returns a value or a Status as its Result
  Result(T v) : value_(std::move(v)) {}
  Result(Status status) : status_(std::move(status)) {
    assert(!status_.ok() && "a Result made of a Status holds an error");
  }
  // Converts from a value that is convertible to T (a unique_ptr to a derived class, a string literal).
  template <class U>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, T> && !std::is_same_v<std::remove_cvref_t<U>, Status>) Result(U&& v)
      : value_(std::forward<U>(v)) {}
  // NOLINTEND(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  // Returns the value. Precondition: ok().
  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Result with_context(std::string_view context) && {
    if (ok()) return std::move(*this);
    return std::move(status_).with_context(context);
  }

 private:
  Status status_;  // ok if and only if value_ is set
  std::optional<T> value_;
};

namespace internal {
inline Status take_status(Status&& s) { return std::move(s); }
inline Status take_status(const Status& s) { return s; }
template <class T>
Status take_status(Result<T>&& r) {
  return std::move(r).status();
}
template <class T>
Status take_status(Result<T>& r) {
  return r.status();
}
inline void take_value(Status&&) {}
inline void take_value(const Status&) {}
template <class T>
T take_value(Result<T>&& r) {
  return std::move(r).value();
}
}  // namespace internal

// Evaluates to the value of a Result, or to nothing for an ok Status. If there is an error, returns it from the
// enclosing function. g++, clang++ and nvcc accept this statement expression. If a TRY returns early inside a braced
// initialiser, a lambda's captures or a `new` expression, g++ 12 leaks the members and captures that are already built,
// and the memory that `new` has allocated. A TRY must therefore be in a statement of its own before such an expression
// (tools/check_try.py), unless it is the first member of an initialiser or an argument of a function. A TRY leaks
// nothing in these two places.
#define TRY(...) TESSERA_TRY_NUMBERED(__COUNTER__, __VA_ARGS__)
// The counter makes the variable's name unique, so that a TRY may be used in another TRY's argument.
#define TESSERA_TRY_NUMBERED(number, ...) TESSERA_TRY_NUMBERED_(number, __VA_ARGS__)
#define TESSERA_TRY_NUMBERED_(number, ...) TESSERA_TRY_NAMED(try_result_##number, __VA_ARGS__)
#define TESSERA_TRY_NAMED(result, ...)                                                 \
  __extension__({                                                                      \
    auto&& result = (__VA_ARGS__);                                                     \
    if (!result.ok()) [[unlikely]]                                                     \
      return ::tessera::internal::take_status(std::forward<decltype(result)>(result)); \
    ::tessera::internal::take_value(std::move(result));                                \
  })

}  // namespace tessera
