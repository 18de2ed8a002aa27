// One bound for the memory that requests make the server hold: their bodies, what is parsed of these, embeddings,
// images and results. What holds memory has a charge, and gives it back by its end.
//
//   MemoryBudget budget(1 << 30);
//   MemoryCharge charge(&budget);
//   TRY(charge.set(body.size()));        // 503 where others hold too much now, 413 where it is more than the budget
//   TRY(charge.set(2 * body.size()));    // grows, or stays as it was
//
// Threads: a budget any, without locks; a charge one at a time. Cost: an atomic addition for each change.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "tessera/server/api_result.h"

namespace tessera {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t bytes) : limit_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  std::int64_t limit() const { return limit_; }
  std::int64_t used() const { return used_; }
  // Since the start, of all charges that grew.
  std::int64_t charged() const { return charged_; }
  // Charges that were refused because others hold the memory (503), and because they alone are above the limit (413).
  std::int64_t refused_for_now() const { return refused_for_now_; }
  std::int64_t refused_for_good() const { return refused_for_good_; }

  // A quarter of what the machine and the control groups have left, between 64 MiB and 64 GiB.
  static std::int64_t default_bytes(std::int64_t available_bytes);

 private:
  friend class MemoryCharge;
  // Adds `more` ≥ 0 to what is used. `whole`: what the request holds then.
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

// What one holder has of a budget. Moved from, it holds nothing and has no budget.
class MemoryCharge {
 public:
  // Belongs to no budget: nothing is counted or refused.
  MemoryCharge() = default;
  // `budget` outlives it; null: none.
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

  // Holds `bytes` from here on, more or fewer than before. `beside`: what its request holds by other charges. Errors,
  // after which it holds what it did: 413 where the request alone is above the limit, which the message names; 503 with
  // Retry-After where others hold too much now.
  ApiStatus set(std::int64_t bytes, std::int64_t beside = 0);
  // Whether set(bytes) would be refused, by the same errors. Holds nothing more.
  ApiStatus check(std::int64_t bytes) const;
  void release();
  std::int64_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace tessera
