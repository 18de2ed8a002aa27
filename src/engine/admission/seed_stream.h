// Makes a stream of seeds from one seed (splitmix64; Steele et al., 2014).
#pragma once

#include <cstdint>
#include <random>

namespace tessera {

class SeedStream {
 public:
  // Starts from a random number if `seed` is 0.
  explicit SeedStream(std::uint64_t seed) : state_(seed != 0 ? seed : random()) {}

  // Returns a seed that is not negative.
  std::int64_t draw() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<std::int64_t>((z ^ (z >> 31)) >> 1);
  }

 private:
  // Returns 64 random bits; a random_device gives 32 at a time.
  static std::uint64_t random() {
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }

  std::uint64_t state_;
};

}  // namespace tessera
