// Implements the row-wise operators of a layer: norms, activations, arithmetic and gathered rows.

// y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * w. One group for each row of n values.
kernel GROUP(LANES) void rms_norm(BUF(x), BUF(w), BUF(y), uint n, float eps, uint form) {
  local float shared[LANES];
  const size_t row = get_group_id(0) * (size_t)n;
  global const x_t *const from = AT(const x_t, x) + row;
  global x_t *const to = AT(x_t, y) + row;
  float squares = 0;
  for (uint i = get_local_id(0); i < n; i += LANES) {
    const float v = LOAD_X(from, i);
    squares = fma(v, v, squares);
  }
  const float scale = 1.0f / sqrt(group_sum(squares, shared) / (float)n + eps);
  for (uint i = get_local_id(0); i < n; i += LANES)
    STORE_X(normalised(LOAD_X(from, i), LOAD_X(AT(const x_t, w), i), scale, form), to, i);
}

// sum = x + residual, y = rms_norm(sum, w). One group for each row of n values.
kernel GROUP(LANES) void add_rms_norm(BUF(x), BUF(residual), BUF(w), BUF(y), BUF(sum), uint n, float eps, uint form) {
  local float shared[LANES];
  const size_t row = get_group_id(0) * (size_t)n;
  global x_t *const added = AT(x_t, sum) + row;
  float squares = 0;
  for (uint i = get_local_id(0); i < n; i += LANES) {
    STORE_X(LOAD_X(AT(const x_t, x), row + i) + LOAD_X(AT(const x_t, residual), row + i), added, i);
    const float v = LOAD_X(added, i);
    squares = fma(v, v, squares);
  }
  const float scale = 1.0f / sqrt(group_sum(squares, shared) / (float)n + eps);
  for (uint i = get_local_id(0); i < n; i += LANES)
    STORE_X(normalised(LOAD_X(added, i), LOAD_X(AT(const x_t, w), i), scale, form), AT(x_t, y), row + i);
}

// Kinds of activation. SOFTCAP is cap * tanh(x / cap).
#define SILU 0
#define GELU_TANH 1
#define GELU_ERF 2
#define SOFTCAP 3

float activation(float x, uint kind, float cap) {
  switch (kind) {
    case SILU: return x / (1.0f + exp(-x));
    // (1 + tanh(a)) / 2 = 1 / (1 + e^-2a)
    case GELU_TANH: return x / (1.0f + exp(-1.5957691216057308f * (x + 0.044715f * x * x * x)));
    case GELU_ERF: return 0.5f * x * erfc(-0.70710678118654752f * x);
    default: return cap * tanh(x / cap);
  }
}

kernel void unary(BUF(x), BUF(y), ulong n, uint kind, float cap) {
  const size_t i = get_global_id(0);
  if (i < n) STORE_X(activation(LOAD_X(AT(const x_t, x), i), kind, cap), AT(x_t, y), i);
}

// y[r, i] = X(activation(x[r, i])) * x[r, n + i]; x has 2n columns. get_global_id(0) counts columns, and
// get_global_id(1) counts rows.
kernel void gated(BUF(x), BUF(y), uint n, uint kind) {
  const size_t i = get_global_id(0);
  const size_t r = get_global_id(1);
  if (i >= n) return;
  global const x_t *const row = AT(const x_t, x) + r * 2 * n;
  STORE_X(ROUND_X(activation(LOAD_X(row, i), kind, 0.0f)) * LOAD_X(row, n + i), AT(x_t, y), r * n + i);
}

// y[i] = a[i] + b[i % period] or a[i] * b[i % period]
kernel void binary(BUF(a), BUF(b), BUF(y), ulong n, ulong period, uint multiply) {
  const size_t i = get_global_id(0);
  if (i >= n) return;
  const float p = LOAD_X(AT(const x_t, a), i);
  const float q = LOAD_X(AT(const x_t, b), i % period);
  STORE_X(multiply ? p * q : p + q, AT(x_t, y), i);
}

kernel void scale(BUF(x), BUF(y), ulong n, float factor) {
  const size_t i = get_global_id(0);
  if (i < n) STORE_X(LOAD_X(AT(const x_t, x), i) * factor, AT(x_t, y), i);
}

kernel void cast(BUF(x), BUF(y), ulong n) {
  const size_t i = get_global_id(0);
  if (i < n) STORE_Y(LOAD_X(AT(const x_t, x), i), AT(y_t, y), i);
}

// y[r] = x[rows[r]], in words of 16 bits; zeros for a row outside x. get_global_id(0) counts the words of a row, and
// get_global_id(1) counts rows.
kernel void gather_rows(BUF(x), BUF(rows), BUF(y), uint words, uint num_rows) {
  const size_t i = get_global_id(0);
  const size_t r = get_global_id(1);
  if (i >= words) return;
  const int row = AT(const int, rows)[r];
  const bool inside = row >= 0 && (uint)row < num_rows;
  AT(ushort, y)[r * words + i] = inside ? AT(const ushort, x)[(size_t)row * words + i] : (ushort)0;
}

// y[r] = x[r, from : from + words], in words of 16 bits. get_global_id(0) counts the words of a row of y, and
// get_global_id(1) counts rows.
kernel void copy_columns(BUF(x), BUF(y), uint row_words, uint from, uint words) {
  const size_t i = get_global_id(0);
  const size_t r = get_global_id(1);
  if (i < words) AT(ushort, y)[r * words + i] = AT(const ushort, x)[r * row_words + from + i];
}

// y[t] = given[given_rows[t], : n] if that row is not negative, otherwise table[ids[t]] * scale; zeros for a row
// outside its table. num_given is negative if there are no given rows. get_global_id(0) counts columns, and
// get_global_id(1) counts rows.
kernel void embedding(BUF(ids), BUF(table), BUF(given_rows), BUF(given), BUF(y), uint n, int num_ids, int num_given,
                      uint given_stride, float factor) {
  const size_t i = get_global_id(0);
  const size_t t = get_global_id(1);
  if (i >= n) return;
  const int given_row = num_given < 0 ? -1 : AT(const int, given_rows)[t];
  const int id = AT(const int, ids)[t];
  float v = 0.0f;
  if (given_row >= 0) {
    if (given_row < num_given) v = LOAD_X(AT(const x_t, given), (size_t)given_row * given_stride + i);
  } else if (id >= 0 && id < num_ids) {
    v = LOAD_X(AT(const x_t, table), (size_t)id * n + i) * factor;
  }
  STORE_X(v, AT(x_t, y), t * n + i);
}
