// Computes rotary position embedding, and stores keys and values to the cache.

// Returns cosine and sine of an angle, accurate to float for |angle| < 2^24 if the device computes in double.
float2 cos_sin(float angle) {
#ifdef cl_khr_fp64
  return (float2)((float)cos((double)angle), (float)sin((double)angle));
#else
  return (float2)(cos(angle), sin(angle));
#endif
}

// Writes the table of cosines and sines. Columns [0, half) are cosines of position * inv_freq, times factor; columns
// [half, 2 half) are sines. With `sections`, positions are [3, rows], and a pair uses the axis of its section; with all
// sections zero, positions are [rows]. The row of position p is also multiplied by 1 + growth * log(1 + p /
// growth_length), with the quotient rounded down. get_global_id(0) counts pairs, and get_global_id(1) counts rows.
kernel void rotary_table(BUF(positions), BUF(inv_freq), BUF(table), uint rows, uint half_dim, float factor,
                         float growth, uint growth_length, uint4 sections, uint interleaved) {
  const uint i = get_global_id(0);
  const uint t = get_global_id(1);
  if (i >= half_dim) return;
  uint axis = 0;
  if (sections.x + sections.y + sections.z > 0) {
    const uint count = i % 3 == 1 ? sections.y : sections.z;
    if (interleaved)
      axis = i % 3 != 0 && i < 3 * count ? i % 3 : 0;
    else
      axis = i < sections.x ? 0 : i < sections.x + sections.y ? 1 : 2;
  }
  const int position = AT(const int, positions)[(size_t)axis * rows + t];
  const float2 turn = cos_sin((float)position * AT(const float, inv_freq)[i]);
  if (growth != 0) factor *= 1 + growth * log1p((float)((uint)position / growth_length));
  global float *const row = AT(float, table) + (size_t)t * 2 * half_dim;
  row[i] = turn.x * factor;
  row[half_dim + i] = turn.y * factor;
}

// Rotates the first 2 * half_dim of each head's values and copies the others. get_global_id(0) counts the values of a
// row, and get_global_id(1) counts rows.
kernel void rotary(BUF(x), BUF(table), BUF(y), uint cols, uint head_dim, uint half_dim, uint interleaved) {
  const uint i = get_global_id(0);
  const size_t t = get_global_id(1);
  if (i >= cols) return;
  global const x_t *const row = AT(const x_t, x) + t * cols;
  global const float *const cosines = AT(const float, table) + t * 2 * half_dim;
  const uint in_head = i % head_dim;
  float v = LOAD_X(row, i);
  if (in_head < 2 * half_dim) {
    const uint pair = interleaved ? in_head / 2 : in_head % half_dim;
    const bool first = interleaved ? in_head % 2 == 0 : in_head < half_dim;
    const uint distance = interleaved ? 1 : half_dim;
    const float other = LOAD_X(row, first ? i + distance : i - distance);
    const float sine = cosines[half_dim + pair];
    v = v * cosines[pair] + (first ? -other * sine : other * sine);
  }
  STORE_X(v, AT(x_t, y), t * cols + i);
}

// k_cache[slots[t]] = k[t], v_cache[slots[t]] = v[t]. A row with a slot outside the cache is skipped. get_global_id(0)
// counts the values of a row, and get_global_id(1) counts rows.
kernel void kv_store(BUF(k), BUF(v), BUF(slots), BUF(k_cache), BUF(v_cache), uint cols, ulong num_slots) {
  const uint i = get_global_id(0);
  const size_t t = get_global_id(1);
  if (i >= cols) return;
  const int slot = AT(const int, slots)[t];
  if (slot < 0 || (ulong)slot >= num_slots) return;
  STORE_Y(LOAD_X(AT(const x_t, k), t * cols + i), AT(y_t, k_cache), (size_t)slot * cols + i);
  STORE_Y(LOAD_X(AT(const x_t, v), t * cols + i), AT(y_t, v_cache), (size_t)slot * cols + i);
}

// Runs between a layer's projection and its attention. Normalises queries and keys if `norm` is set, rotates them, and
// stores queries to q, and keys and values to their slots. get_group_id(0) counts the heads of a row (queries, keys,
// values), and get_group_id(1) counts rows.
kernel GROUP(LANES) void qkv_rope_store(BUF(qkv), BUF(table), BUF(slots), BUF(k_cache), BUF(v_cache), BUF(q_weight),
                                        BUF(k_weight), BUF(q), uint heads, uint kv_heads, uint head_dim, uint half_dim,
                                        ulong num_slots, uint norm, float eps, uint form) {
  local float shared[LANES];
  const uint h = get_group_id(0);
  const size_t t = get_group_id(1);
  const uint lane = get_local_id(0);
  const bool is_query = h < heads;
  const bool is_value = h >= heads + kv_heads;
  global const x_t *const from = AT(const x_t, qkv) + (t * (heads + 2 * kv_heads) + h) * head_dim;

  float scale = 1.0f;
  if (norm && !is_value) {  // the same for all items of a group
    float squares = 0;
    for (uint i = lane; i < head_dim; i += LANES) {
      const float v = LOAD_X(from, i);
      squares = fma(v, v, squares);
    }
    scale = 1.0f / sqrt(group_sum(squares, shared) / (float)head_dim + eps);
  }
  const int slot = AT(const int, slots)[t];
  const bool stored = slot >= 0 && (ulong)slot < num_slots;
  global const x_t *const weight = is_query ? AT(const x_t, q_weight) : AT(const x_t, k_weight);
  global const float *const cosines = AT(const float, table) + t * 2 * half_dim;
  const uint kv_head = is_value ? h - heads - kv_heads : h - heads;
  const size_t cached = ((size_t)slot * kv_heads + kv_head) * head_dim;
  for (uint i = lane; i < head_dim; i += LANES) {
    float v = LOAD_X(from, i);
    if (!is_value) {
      const bool turned = i < 2 * half_dim;
      const bool first = i < half_dim;
      const uint partner = !turned ? i : first ? i + half_dim : i - half_dim;
      float other = LOAD_X(from, partner);
      if (norm) {
        v = ROUND_X(normalised(v, LOAD_X(weight, i), scale, form));
        other = ROUND_X(normalised(other, LOAD_X(weight, partner), scale, form));
      }
      if (turned) {
        const uint pair = first ? i : i - half_dim;
        const float sine = cosines[half_dim + pair];
        v = v * cosines[pair] + (first ? -other * sine : other * sine);
      }
      v = ROUND_X(v);
    }
    if (is_query)
      STORE_X(v, AT(x_t, q), (t * heads + h) * head_dim + i);
    else if (stored && is_value)
      STORE_Y(v, AT(y_t, v_cache), cached + i);
    else if (stored)
      STORE_Y(v, AT(y_t, k_cache), cached + i);
  }
}
