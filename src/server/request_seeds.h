// Draws the seeds of requests that name none. Thread-safe. Requests that are read one after another get the same seeds
// after every start with one --random-seed.
#pragma once

#include <cstdint>
#include <mutex>

#include "tessera/engine/admission/seed_stream.h"

namespace tessera {

class RequestSeeds {
 public:
  // Starts from a random number if `seed` is 0.
  explicit RequestSeeds(std::uint64_t seed) : stream_(seed) {}

  // Returns a seed that every client can send back: it is not negative, and has 53 bits, which a number in JavaScript
  // holds exactly.
  std::int64_t draw() {
    const std::lock_guard lock(mutex_);
    return stream_.draw() >> 10;
  }

 private:
  std::mutex mutex_;
  SeedStream stream_;
};

}  // namespace tessera
