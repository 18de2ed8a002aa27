// Defines what all kernels share: addresses, storage types, sums over a work-group.
//
// An address is a buffer and an offset in bytes, because each allocation is a buffer of its own. A program is built for
// two storage types, X of activations and weights and Y of the cache: -DX=f32 -DY=f16. Arithmetic is in float.

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#define BUF(name) global uchar *name, ulong name##_at
#define AT(type, name) ((global type *)(name + name##_at))

typedef float f32_t;
typedef half f16_t;
typedef ushort bf16_t;

float load_f32(global const float *p, size_t i) { return p[i]; }
float4 load4_f32(global const float *p, size_t i) { return vload4(0, p + i); }
float8 load8_f32(global const float *p, size_t i) { return vload8(0, p + i); }
void store_f32(float v, global float *p, size_t i) { p[i] = v; }
float round_f32(float v) { return v; }

float load_f16(global const half *p, size_t i) { return vload_half(i, p); }
float4 load4_f16(global const half *p, size_t i) { return vload_half4(0, p + i); }
float8 load8_f16(global const half *p, size_t i) { return vload_half8(0, p + i); }
void store_f16(float v, global half *p, size_t i) { vstore_half_rte(v, i, p); }
float round_f16(float v) {
  ushort bits;
  vstore_half_rte(v, 0, (half *)&bits);
  return vload_half(0, (half *)&bits);
}

// Rounds to nearest, ties to even; NaN stays NaN.
ushort to_bf16(float v) {
  const uint bits = as_uint(v);
  if (isnan(v)) return (ushort)(bits >> 16 | 0x40u);
  return (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
float from_bf16(ushort v) { return as_float((uint)v << 16); }
float load_bf16(global const ushort *p, size_t i) { return from_bf16(p[i]); }
float4 load4_bf16(global const ushort *p, size_t i) { return as_float4(convert_uint4(vload4(0, p + i)) << 16); }
float8 load8_bf16(global const ushort *p, size_t i) { return as_float8(convert_uint8(vload8(0, p + i)) << 16); }
void store_bf16(float v, global ushort *p, size_t i) { p[i] = to_bf16(v); }
float round_bf16(float v) { return from_bf16(to_bf16(v)); }

typedef CAT(X, _t) x_t;
#define LOAD_X CAT(load_, X)
#define LOAD4_X CAT(load4_, X)
#define LOAD8_X CAT(load8_, X)
#define STORE_X CAT(store_, X)
#define ROUND_X CAT(round_, X)
typedef CAT(Y, _t) y_t;
#define LOAD_Y CAT(load_, Y)
#define LOAD4_Y CAT(load4_, Y)
#define STORE_Y CAT(store_, Y)

// The ways in which a norm's weight multiplies (NORM_ROUND_FIRST: the normalised value is rounded to X first).
#define NORM_ROUND_FIRST 0
#define NORM_ROUND_ONCE 1
#define NORM_UNIT_OFFSET 2

float normalised(float x, float w, float scale, uint form) {
  const float value = x * scale;
  if (form == NORM_ROUND_FIRST) return ROUND_X(value) * w;
  return value * (form == NORM_UNIT_OFFSET ? 1.0f + w : w);
}

// Number of work-items of a group that shares one row. GROUP(n) fixes the size, which compilers need to know.
#define LANES 64
#define GROUP(n) __attribute__((reqd_work_group_size(n, 1, 1)))

// Sums over the LANES items of a group. All items call it and get the result. The order of additions is fixed.
float group_sum(float v, local float *shared) {
  const uint lane = get_local_id(0);
  shared[lane] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = LANES / 2; step > 0; step /= 2) {
    if (lane < step) shared[lane] += shared[lane + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float sum = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}

// Ignores NaN, which is never greater.
float group_max(float v, local float *shared) {
  const uint lane = get_local_id(0);
  shared[lane] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = LANES / 2; step > 0; step /= 2) {
    if (lane < step) shared[lane] = shared[lane + step] > shared[lane] ? shared[lane + step] : shared[lane];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float greatest = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return greatest;
}
