#include "tessera/server/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {

std::int64_t MemoryBudget::default_bytes(std::int64_t available_bytes) {
  constexpr std::int64_t kLeast = std::int64_t{64} << 20;
  constexpr std::int64_t kMost = std::int64_t{64} << 30;
  return std::clamp(available_bytes / 4, kLeast, kMost);
}

bool MemoryBudget::try_take(std::int64_t more, std::int64_t whole) {
  const std::int64_t most = limit(whole);
  if (whole > most) return false;
  if (used_.fetch_add(more, std::memory_order_relaxed) + more > most) {
    give_back(more);
    return false;
  }
  charged_.fetch_add(more, std::memory_order_relaxed);
  return true;
}

ApiStatus MemoryBudget::take(std::int64_t more, std::int64_t whole) {
  if (try_take(more, whole)) return api_ok();
  return whole > limit(whole) ? refuse_for_good(whole) : refuse_for_now();
}

ApiStatus MemoryBudget::refuse_for_good(std::int64_t whole) {
  ++refused_for_good_;
  return ApiError{.http_status = 413,
                  .message = fmt::format(
                      "the request and its answer take {} bytes of memory; accepted: up to {}, all that requests of "
                      "this size have together (--request-memory-budget)",
                      whole, limit(whole)),
                  .param = {},
                  .code = "request_too_large"};
}

ApiStatus MemoryBudget::refuse_for_now() {
  ++refused_for_now_;
  return ApiError{.http_status = 503,
                  .message = "other requests hold the memory that requests may take; come again",
                  .type = "server_error",
                  .param = {},
                  .code = "service_unavailable",
                  .retry_after_s = 1};
}

ApiStatus MemoryCharge::set(std::int64_t bytes, std::int64_t beside) {
  if (budget_ != nullptr && bytes > bytes_) TRY(budget_->take(bytes - bytes_, bytes + beside));
  if (budget_ != nullptr && bytes < bytes_) budget_->give_back(bytes_ - bytes);
  bytes_ = bytes;
  return api_ok();
}

bool MemoryCharge::try_set(std::int64_t bytes) {
  if (budget_ == nullptr || bytes <= bytes_) return set(bytes).ok();
  if (!budget_->try_take(bytes - bytes_, bytes)) return false;
  bytes_ = bytes;
  return true;
}

ApiStatus MemoryCharge::check(std::int64_t bytes) const {
  if (budget_ == nullptr || bytes <= bytes_) return api_ok();
  const std::int64_t most = budget_->limit(bytes);
  if (bytes > most) return budget_->refuse_for_good(bytes);
  return budget_->used() - bytes_ + bytes > most ? budget_->refuse_for_now() : api_ok();
}

void MemoryCharge::release() {
  if (budget_ != nullptr) budget_->give_back(bytes_);
  bytes_ = 0;
}

}  // namespace tessera
