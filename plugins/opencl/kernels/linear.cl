// y[m, n] = x[m, :] . w[n, :] + bias[n] + residual[m, n]. Sums are in float and rounded once; y may be residual's
// memory. With each kernel, a row's bits do not depend on other rows. The kernels for few rows share one order of sums,
// and the one for many rows has another.

#define HAS_BIAS 1
#define HAS_RESIDUAL 2

float finished(float sum, global const x_t *bias, global const x_t *residual, uint flags, uint col, size_t at) {
  if (flags & HAS_BIAS) sum += LOAD_X(bias, col);
  if (flags & HAS_RESIDUAL) sum += LOAD_X(residual, at);
  return sum;
}

// These kernels are for a few rows and take most of their time to read w. Eight work-items share a column and read 64
// neighbouring weights at once.
#define FEW_ROWS 4
#define FEW_COLS 8
#define FEW_LANES 8
#define FEW_GROUP __attribute__((reqd_work_group_size(FEW_LANES, FEW_COLS, 1)))

// A group computes `num_rows` rows, at most FEW_ROWS; callers pass a constant. `sums` is
// [num_rows][FEW_COLS][FEW_LANES].
void few_rows(const uint num_rows, global const x_t *x, global const x_t *w, global const x_t *bias,
                     global const x_t *residual, global x_t *y, uint m, uint n, uint k, uint flags, local float *sums) {
  const uint lane = get_local_id(0);
  const uint col_in_group = get_local_id(1);
  const uint col = get_group_id(0) * FEW_COLS + col_in_group;
  const uint first = get_group_id(1) * num_rows;
  global const x_t *const wr = w + (size_t)min(col, n - 1) * k;
  size_t at[FEW_ROWS];  // offset of each row; rows past the last one repeat its offset and are not stored
  float8 acc[FEW_ROWS];
  float rest[FEW_ROWS];
  for (uint r = 0; r < num_rows; ++r) {
    at[r] = (size_t)min(first + r, m - 1) * k;
    acc[r] = 0.0f;
    rest[r] = 0.0f;
  }
  for (uint i = lane * 8; i + 8 <= k; i += FEW_LANES * 8) {
    const float8 weight = LOAD8_X(wr, i);
    for (uint r = 0; r < num_rows; ++r) acc[r] = fma(LOAD8_X(x, at[r] + i), weight, acc[r]);
  }
  for (uint i = k / 8 * 8 + lane; i < k; i += FEW_LANES) {
    const float weight = LOAD_X(wr, i);
    for (uint r = 0; r < num_rows; ++r) rest[r] = fma(LOAD_X(x, at[r] + i), weight, rest[r]);
  }
  for (uint r = 0; r < num_rows; ++r) {
    const float4 half_sum = acc[r].lo + acc[r].hi;
    sums[(r * FEW_COLS + col_in_group) * FEW_LANES + lane] =
        (half_sum.x + half_sum.y) + (half_sum.z + half_sum.w) + rest[r];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane >= num_rows || col >= n || first + lane >= m) return;
  float sum = 0.0f;
  for (uint l = 0; l < FEW_LANES; ++l) sum += sums[(lane * FEW_COLS + col_in_group) * FEW_LANES + l];
  const size_t out = (size_t)(first + lane) * n + col;
  STORE_X(finished(sum, bias, residual, flags, col, out), y, out);
}

kernel FEW_GROUP void linear_one(BUF(x), BUF(w), BUF(bias), BUF(residual), BUF(y), uint m, uint n, uint k,
                                 uint flags) {
  local float sums[FEW_COLS * FEW_LANES];
  few_rows(1, AT(const x_t, x), AT(const x_t, w), AT(const x_t, bias), AT(const x_t, residual), AT(x_t, y), m, n, k,
           flags, sums);
}

kernel FEW_GROUP void linear_few(BUF(x), BUF(w), BUF(bias), BUF(residual), BUF(y), uint m, uint n, uint k,
                                 uint flags) {
  local float sums[FEW_ROWS * FEW_COLS * FEW_LANES];
  few_rows(FEW_ROWS, AT(const x_t, x), AT(const x_t, w), AT(const x_t, bias), AT(const x_t, residual), AT(x_t, y), m, n,
           k, flags, sums);
}

// The kernel for many rows. A group computes a tile of y from blocks of x and w in local memory, and a work-item
// computes 4 rows of 8 columns.
#define TILE_M 32
#define TILE_N 64
#define TILE_K 16

kernel __attribute__((reqd_work_group_size(8, 8, 1))) void linear_tiled(BUF(x), BUF(w), BUF(bias), BUF(residual),
                                                                       BUF(y), uint m, uint n, uint k, uint flags) {
  local float xs[TILE_M][TILE_K];
  local float ws[TILE_K][TILE_N];
  const uint item = get_local_id(1) * 8 + get_local_id(0);
  const uint first_col = get_group_id(0) * TILE_N;
  const uint first_row = get_group_id(1) * TILE_M;
  // The item's part of a block in local memory: a column's 16 weights, and half a row of x.
  global const x_t *const from_w = AT(const x_t, w) + (size_t)min(first_col + item, n - 1) * k;
  const uint x_row = item / 2;
  const uint x_k = item % 2 * 8;
  global const x_t *const from_x = AT(const x_t, x) + (size_t)min(first_row + x_row, m - 1) * k;
  float8 acc[4];
  for (uint r = 0; r < 4; ++r) acc[r] = 0.0f;
  for (uint block = 0; block < k; block += TILE_K) {
    if (block + TILE_K <= k) {
      const float8 low = LOAD8_X(from_w, block);
      const float8 high = LOAD8_X(from_w, block + 8);
      ws[0][item] = low.s0;
      ws[1][item] = low.s1;
      ws[2][item] = low.s2;
      ws[3][item] = low.s3;
      ws[4][item] = low.s4;
      ws[5][item] = low.s5;
      ws[6][item] = low.s6;
      ws[7][item] = low.s7;
      ws[8][item] = high.s0;
      ws[9][item] = high.s1;
      ws[10][item] = high.s2;
      ws[11][item] = high.s3;
      ws[12][item] = high.s4;
      ws[13][item] = high.s5;
      ws[14][item] = high.s6;
      ws[15][item] = high.s7;
      vstore8(LOAD8_X(from_x, block + x_k), 0, &xs[x_row][x_k]);
    } else {  // the last block has zeros behind its end
      for (uint i = 0; i < TILE_K; ++i) ws[i][item] = block + i < k ? LOAD_X(from_w, block + i) : 0.0f;
      for (uint i = x_k; i < x_k + 8; ++i) xs[x_row][i] = block + i < k ? LOAD_X(from_x, block + i) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < TILE_K; ++i) {
      const float8 weight = vload8(0, &ws[i][get_local_id(0) * 8]);
      for (uint r = 0; r < 4; ++r) acc[r] = fma((float8)(xs[get_local_id(1) * 4 + r][i]), weight, acc[r]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (uint r = 0; r < 4; ++r) {
    const uint row = first_row + get_local_id(1) * 4 + r;
    if (row >= m) break;
    float sums[8];
    vstore8(acc[r], 0, sums);
    for (uint c = 0; c < 8; ++c) {
      const uint col = first_col + get_local_id(0) * 8 + c;
      if (col >= n) break;
      const size_t out = (size_t)row * n + col;
      STORE_X(finished(sums[c], AT(const x_t, bias), AT(const x_t, residual), flags, col, out), AT(x_t, y), out);
    }
  }
}
