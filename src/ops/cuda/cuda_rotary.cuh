// The rotation of rotary position embeddings, shared by rotary and the operators that contain it.
//
// A head has `dim` elements, and the first 2·half are rotated. A head is cut into slots, each of two packs of N
// elements. If the elements of a slot are rotated, its packs lie `half` apart, so that one thread holds both elements
// of each pair (i, i + half). Otherwise its packs are neighbours, and their elements do not change.
#pragma once

#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

struct HeadShape {
  int dim;   // number of elements in a head
  int half;  // number of pairs in a head; 2 · half <= dim
};

// Returns whether `dim` and `half` are multiples of n, so that packs of n elements fit.
constexpr bool fits_packs(const HeadShape& shape, int n) { return shape.dim % n == 0 && shape.half % n == 0; }

struct HeadSlot {
  int first;     // the first pack begins at this element of the head
  int second;    // the second pack begins at this element of the head; -1: there is no second pack
  bool rotated;  // whether the packs are rotated; element i of both packs is rotated by the angle of pair first + i
};

template <int N>
constexpr int slots_of(const HeadShape& shape) {
  const int rest = (shape.dim - 2 * shape.half) / N;
  return shape.half / N + (rest + 1) / 2;
}

template <int N>
__device__ inline HeadSlot slot_at(const HeadShape& shape, int slot) {
  const int pairs = shape.half / N;
  if (slot < pairs) return {slot * N, shape.half + slot * N, true};
  const int first = 2 * shape.half + 2 * (slot - pairs) * N;
  return {first, first + N < shape.dim ? first + N : -1, false};
}

// Rotates: (a, b) becomes (a·cos - b·sin, b·cos + a·sin), rounded to T. Multiply-adds are fused explicitly, not by the
// compiler's choice, so that all kernels give the same bits.
template <class T>
__device__ inline void rotate(T& a, T& b, float cosine, float sine) {
  const float x = to_float(a);
  const float y = to_float(b);
  a = from_float<T>(fmaf(x, cosine, -(y * sine)));
  b = from_float<T>(fmaf(y, cosine, x * sine));
}

// The cosines and sines for the N pairs of elements that the two packs of a slot form.
template <int N>
struct Angles {
  float cosine[N];
  float sine[N];
};

// Loads angles from a row of the table: cosines [half], then sines [half]. `first` is a multiple of N.
template <int N>
__device__ inline Angles<N> load_angles(const float* row, int half, int first) {
  constexpr int kFloats = N < kPackSize<float> ? N : kPackSize<float>;
  Angles<N> angles;
#pragma unroll
  for (int i = 0; i < N; i += kFloats) {
    const Pack<float, kFloats> cosine = load_pack<float, kFloats>(row + first + i);
    const Pack<float, kFloats> sine = load_pack<float, kFloats>(row + half + first + i);
#pragma unroll
    for (int j = 0; j < kFloats; ++j) {
      angles.cosine[i + j] = cosine.at[j];
      angles.sine[i + j] = sine.at[j];
    }
  }
  return angles;
}

template <class T, int N>
__device__ inline void rotate_packs(Pack<T, N>& a, Pack<T, N>& b, const Angles<N>& angles) {
#pragma unroll
  for (int j = 0; j < N; ++j) rotate(a.at[j], b.at[j], angles.cosine[j], angles.sine[j]);
}

}  // namespace tessera::cuda
