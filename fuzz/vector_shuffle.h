// Defines g++'s __builtin_shuffle for clang, which compiles the fuzz targets. Clang's own function accepts only
// constant lanes. The preset includes this file before every source. The kernels that use the function are not fuzz
// targets.
#pragma once

#define __builtin_shuffle tessera_shuffle

template <class Vector, class Lanes>
__attribute__((always_inline)) inline Vector tessera_shuffle(const Vector& a, const Lanes& lanes) {
  constexpr int kLanes = sizeof(Vector) / sizeof(a[0]);
  Vector out{};
  for (int i = 0; i < kLanes; ++i) out[i] = a[lanes[i] % kLanes];
  return out;
}

template <class Vector, class Lanes>
__attribute__((always_inline)) inline Vector tessera_shuffle(const Vector& a, const Vector& b, const Lanes& lanes) {
  constexpr int kLanes = sizeof(Vector) / sizeof(a[0]);
  Vector out{};
  for (int i = 0; i < kLanes; ++i) out[i] = lanes[i] < kLanes ? a[lanes[i]] : b[lanes[i] - kLanes];
  return out;
}
