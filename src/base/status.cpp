#include "tessera/base/status.h"

#include <utility>

namespace tessera {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kNotFound: return "not found";
    case StatusCode::kFailedPrecondition: return "failed precondition";
    case StatusCode::kResourceExhausted: return "resource exhausted";
    case StatusCode::kUnimplemented: return "unimplemented";
    case StatusCode::kDeviceLost: return "device lost";
    case StatusCode::kDataLoss: return "data loss";
    case StatusCode::kCancelled: return "cancelled";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message) : failure_(new Failure{code, std::move(message)}) {
  assert(code != StatusCode::kOk);
}

Status::Failure* Status::copy(const Failure& failure) { return new Failure(failure); }

void Status::free(Failure* failure) noexcept { delete failure; }

const std::string& Status::message() const {
  static const std::string none;
  return ok() ? none : failure_->message;
}

Status Status::with_context(std::string_view context) && {
  if (!ok()) failure_->message.insert(0, std::string(context) + ": ");
  return std::move(*this);
}

Status Status::with_context(std::string_view context) const& {
  Status copy = *this;
  return std::move(copy).with_context(context);
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(status_code_name(failure_->code)) + ": " + failure_->message;
}

Status invalid_argument(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
Status not_found(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status failed_precondition(std::string message) { return {StatusCode::kFailedPrecondition, std::move(message)}; }
Status resource_exhausted(std::string message) { return {StatusCode::kResourceExhausted, std::move(message)}; }
Status unimplemented(std::string message) { return {StatusCode::kUnimplemented, std::move(message)}; }
Status device_lost(std::string message) { return {StatusCode::kDeviceLost, std::move(message)}; }
Status data_loss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
Status cancelled(std::string message) { return {StatusCode::kCancelled, std::move(message)}; }
Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace tessera
