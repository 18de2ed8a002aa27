// Device functions that select the requests in the direct form and place their key rows in scratch memory
// (latent_forms.h). A key row has one position's keys for all heads. All lanes of a warp call these functions together.
#pragma once

#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/latent/latent_forms.h"

namespace tessera::latent {

using cuda::kWarp;

inline constexpr int kKeyRows = 128;  // keys and values of a request begin at multiples of this number of rows

__device__ inline int count_requests(const LatentForms& forms) {
  int n = min(*forms.num_requests, forms.max_requests);
  while (n > 0 && forms.query_starts[n] > forms.num_rows) --n;
  return n;
}

// Returns the number of key rows that a request needs in the direct form, or 0 if the request has too few new rows for
// this form.
__device__ inline int key_rows(const LatentForms& forms, int request) {
  const int rows = forms.query_starts[request + 1] - forms.query_starts[request];
  return rows < forms.least_rows ? 0 : (forms.kv_lens[request] + kKeyRows - 1) / kKeyRows * kKeyRows;
}

// Calls f(request, end, own) for the requests in order. The lanes of a warp call f for 32 requests at a time. Stops
// when f returns true in some lane. Returns whether f returned true. `own` is the request's number of key rows, and
// `end` is the number of key rows of this and all earlier requests together.
template <class F>
__device__ inline bool any_of_requests(const LatentForms& forms, F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int requests = count_requests(forms);
  int before = 0;
  for (int begin = 0; begin < requests; begin += kWarp) {
    const int own = begin + lane < requests ? key_rows(forms, begin + lane) : 0;
    int end = own;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, end, step);
      if (lane >= step) end += other;
    }
    const bool found = begin + lane < requests && f(begin + lane, before + end, own);
    if (__any_sync(0xffffffffu, found)) return true;
    before += __shfl_sync(0xffffffffu, end, kWarp - 1);
  }
  return false;
}

// Returns the row of scratch memory at which the keys made for a request begin, or -1 if the request takes the absorbed
// form.
__device__ inline int direct_place(const LatentForms& forms, int request) {
  if (forms.least_rows == INT_MAX) return -1;
  int before = 0;
  for (int b = static_cast<int>(threadIdx.x) % kWarp; b < request; b += kWarp) before += key_rows(forms, b);
  before = __reduce_add_sync(0xffffffffu, before);
  const int own = key_rows(forms, request);
  return own > 0 && before + own <= forms.capacity ? before : -1;
}

// Returns whether any of the rows [first, first + rows) of the forward belongs to a request in the absorbed form.
__device__ inline bool has_absorbed_rows(const LatentForms& forms, int first, int rows) {
  if (forms.least_rows == INT_MAX) return true;
  return any_of_requests(forms, [&](int request, int end, int own) {
    const bool direct = own > 0 && end <= forms.capacity;
    return !direct && forms.query_starts[request] < first + rows && forms.query_starts[request + 1] > first;
  });
}

// A part of the key rows: kKeyRows rows of one request.
struct KeyPart {
  int request;
  int first;  // position within the request
};
// Finds the key part with index `number`; returns false if there are fewer parts.
__device__ inline bool find_key_part(const LatentForms& forms, int number, KeyPart& part) {
  const int row = number * kKeyRows;
  KeyPart own_part{-1, 0};
  const bool found = any_of_requests(forms, [&](int request, int end, int own) {
    if (row < end - own || row >= end || end > forms.capacity) return false;
    own_part = {request, row - (end - own)};
    return true;
  });
  if (!found) return false;
  const int owner = __ffs(static_cast<int>(__ballot_sync(0xffffffffu, own_part.request >= 0))) - 1;
  part = {__shfl_sync(0xffffffffu, own_part.request, owner), __shfl_sync(0xffffffffu, own_part.first, owner)};
  return true;
}

}  // namespace tessera::latent
