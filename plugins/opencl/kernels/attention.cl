// Computes attention over the paged cache. A work-group computes one query head of one row, with the running maximum of
// online softmax.
//
//   s_j = factor * q . k_j, or softcap * tanh(s_j / softcap);  out = sum softmax(s)_j * v_j
//
// `plan` (i32, written before every forward): [0] is the number of rows. For each row t, element 2 + 2t is the number
// of keys that it attends to, and the next one is the index in `plan` of its request's first page. Blocks of keys start
// at multiples of LANES, so a row's bits depend only on its query and its keys and values.

#define MAX_HEAD_DIM 256

float dot_head(local const float *q, global const y_t *k, uint head_dim) {
  float4 sum = 0.0f;
  for (uint i = 0; i < head_dim; i += 4) sum = fma(vload4(0, q + i), LOAD4_Y(k, i), sum);
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// get_group_id(0) counts query heads, and get_group_id(1) counts rows. head_dim is a multiple of 4, at most
// MAX_HEAD_DIM.
kernel GROUP(LANES) void attention(BUF(q), BUF(k_cache), BUF(v_cache), BUF(out), BUF(sinks), BUF(plan), uint heads,
                                   uint kv_heads, uint head_dim, uint page_size, uint window, float factor,
                                   float softcap, uint has_sinks) {
  local float query[MAX_HEAD_DIM];
  local float shared[LANES];
  local float weight[LANES];
  local size_t place[LANES];  // offset of each key of the block, in elements
  local float4 parts[LANES];
  const uint lane = get_local_id(0);
  const uint h = get_group_id(0);
  const uint t = get_group_id(1);
  global const int *const p = AT(const int, plan);
  if ((int)t >= p[0]) return;
  const uint end = (uint)p[2 + 2 * t];
  global const int *const pages = p + p[3 + 2 * t];
  const uint begin = window > 0 && end > window ? end - window : 0;
  const uint kv_head = h / (heads / kv_heads);
  const size_t row = ((size_t)t * heads + h) * head_dim;
  for (uint i = lane; i < head_dim; i += LANES) query[i] = LOAD_X(AT(const x_t, q), row + i);

  // A work-item sums four columns of the values, over every span-th key.
  const uint columns = head_dim / 4;
  const uint span = LANES / columns;
  const uint first_key = lane / columns;
  const uint column = lane % columns * 4;
  float greatest = has_sinks ? AT(const float, sinks)[h] : -INFINITY;
  float sum = has_sinks ? 1.0f : 0.0f;
  float4 acc = 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint block = begin / LANES * LANES; block < end; block += LANES) {
    const uint key = block + lane;
    const bool seen = key >= begin && key < end;
    float score = -INFINITY;
    if (seen) {
      const size_t slot = (size_t)pages[key / page_size] * page_size + key % page_size;
      place[lane] = (slot * kv_heads + kv_head) * head_dim;
      score = factor * dot_head(query, AT(const y_t, k_cache) + place[lane], head_dim);
      if (softcap > 0.0f) score = softcap * tanh(score / softcap);
    }
    const float block_greatest = group_max(score, shared);
    const float now = block_greatest > greatest ? block_greatest : greatest;
    const float kept = greatest == now ? 1.0f : exp(greatest - now);
    weight[lane] = seen ? exp(score - now) : 0.0f;
    greatest = now;
    sum = sum * kept + group_sum(weight[lane], shared);
    acc *= kept;
    const uint from = begin > block ? begin - block : 0;
    const uint to = min(end - block, (uint)LANES);
    if (first_key < span)
      for (uint j = from + first_key; j < to; j += span)
        acc = fma((float4)(weight[j]), LOAD4_Y(AT(const y_t, v_cache) + place[j], column), acc);
    barrier(CLK_LOCAL_MEM_FENCE);  // before the next block overwrites weight and place
  }
  parts[lane] = acc;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane >= columns) return;
  for (uint s = 1; s < span; ++s) acc += parts[s * columns + lane];
  acc /= sum;
  global x_t *const to_row = AT(x_t, out) + row + column;
  STORE_X(acc.x, to_row, 0);
  STORE_X(acc.y, to_row, 1);
  STORE_X(acc.z, to_row, 2);
  STORE_X(acc.w, to_row, 3);
}
