// One limit for the memory that the server holds for requests: bodies, parsed bodies, embeddings, images and results.
// Each holder has a charge, which gives the memory back when it is destroyed.
//
//   MemoryBudget budget(1 << 30);
//   MemoryCharge charge(&budget);
//   TRY(charge.set(body.size()));      // 503 if other charges hold too much now, 413 if this charge alone is too large
//   TRY(charge.set(2 * body.size()));  // grows; an error leaves the charge unchanged
//
// Large requests never fill the budget, because its last sixteenth is left to small requests, which hold at most
// kSmallBytes each. Short chats are therefore still answered while images and long prompts are refused for now.
//
// Threads: any thread may use a budget, without locks. One thread at a time may use a charge. Cost: one or two atomic
// additions per change.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "tessera/server/api_result.h"

namespace tessera {

class MemoryBudget {
 public:
  // A request that holds at most this many bytes is small.
  static constexpr std::int64_t kSmallBytes = std::int64_t{256} << 10;

  explicit MemoryBudget(std::int64_t bytes) : limit_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  std::int64_t limit() const { return limit_; }
  // Returns the limit for a charge: the maximum number of bytes that all requests together may hold after the charge.
  // `whole` is the number of bytes that the charged request then holds in all its charges. Only small requests may use
  // the last sixteenth of the budget.
  std::int64_t limit(std::int64_t whole) const { return whole <= kSmallBytes ? limit_ : limit_ - limit_ / 16; }
  std::int64_t used() const { return used_; }
  // Returns the bytes charged since the start: the sum of all increases of charges.
  std::int64_t charged() const { return charged_; }
  // Return the number of charges that were refused because other charges hold the memory (503), and the number of
  // charges that were refused because the request alone exceeds the limit (413).
  std::int64_t refused_for_now() const { return refused_for_now_; }
  std::int64_t refused_for_good() const { return refused_for_good_; }

  // Returns a quarter of `available_bytes`, the available memory of the machine and its control groups, but at least
  // 64 MiB and at most 64 GiB.
  static std::int64_t default_bytes(std::int64_t available_bytes);

 private:
  friend class MemoryCharge;
  // Adds `more` ≥ 0 bytes to the used memory. `whole` is as in limit(). Returns false if the limit forbids that.
  bool try_take(std::int64_t more, std::int64_t whole);
  // Does what try_take() does, but returns an error instead of false, and counts the refusal.
  ApiStatus take(std::int64_t more, std::int64_t whole);
  ApiStatus refuse_for_good(std::int64_t whole);
  ApiStatus refuse_for_now();
  void give_back(std::int64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  const std::int64_t limit_;
  std::atomic<std::int64_t> used_ = 0;
  std::atomic<std::int64_t> charged_ = 0;
  std::atomic<std::int64_t> refused_for_now_ = 0;
  std::atomic<std::int64_t> refused_for_good_ = 0;
};

// The bytes that one holder takes from a budget. A moved-from charge holds nothing and has no budget.
class MemoryCharge {
 public:
  // Makes a charge without a budget. The charge counts nothing and refuses nothing.
  MemoryCharge() = default;
  // `budget` outlives the charge. If it is null, the charge has no budget.
  explicit MemoryCharge(MemoryBudget* budget) : budget_(budget) {}
  MemoryCharge(MemoryCharge&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    if (this == &other) return *this;
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~MemoryCharge() { release(); }

  // Sets the number of bytes that the charge holds. The number may grow or shrink. `beside` is the number of bytes that
  // the same request holds in other charges. After an error the charge is unchanged. Errors: 413 if the request alone
  // exceeds the limit for its size (the message names this limit), and 503 with Retry-After if other requests hold too
  // much now.
  ApiStatus set(std::int64_t bytes, std::int64_t beside = 0);
  // Does what set(bytes) does for memory that the request can do without: a refusal returns false and is not counted.
  bool try_set(std::int64_t bytes);
  // Returns the error that set(bytes) would return, and counts it as a refusal. The charge stays unchanged.
  ApiStatus check(std::int64_t bytes) const;
  void release();
  std::int64_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace tessera
