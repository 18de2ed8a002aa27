// Computes log-probabilities, edits logits, and resolves ids. All values are float or int; X and Y are not used.

// Returns the log of the sum of e^(x - greatest) over a row without its NaNs. Each item's sum is compensated for
// rounding (Kahan).
float group_log_sum(global const float *x, uint n, float greatest, local float *shared) {
  float sum = 0.0f;
  float lost = 0.0f;
  for (uint i = get_local_id(0); i < n; i += LANES) {
    const float v = (isnan(x[i]) ? 0.0f : exp(x[i] - greatest)) - lost;
    const float next = sum + v;
    lost = (next - sum) - v;
    sum = next;
  }
  return log(group_sum(sum, shared));
}

#define TOP 20

// Computes the log-probabilities of a target and of the first TOP tokens of each row. One group for each row.
kernel GROUP(LANES) void top_logprobs(BUF(logits), BUF(targets), BUF(logprobs), BUF(top_ids), BUF(top_values), uint n) {
  local float shared[LANES];
  local ulong keys[LANES];
  const uint lane = get_local_id(0);
  const size_t r = get_group_id(0);
  global const float *const x = AT(const float, logits) + r * n;
  float greatest = -INFINITY;
  bool distribution = false;
  float normaliser = 0.0f;
  ulong previous = 0;  // key of the last token found, plus one
  for (uint place = 0; place < TOP; ++place) {
    // Finds the token with the least key that is not below `previous`.
    ulong key = ULONG_MAX;
    for (uint i = lane; i < n; i += LANES) {
      if (isnan(x[i])) continue;
      const ulong here = order_key(x[i], i);
      if (here >= previous && here < key) key = here;
    }
    keys[lane] = key;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = LANES / 2; step > 0; step /= 2) {
      if (lane < step) keys[lane] = min(keys[lane], keys[lane + step]);
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    const ulong found = keys[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    const bool there = found != ULONG_MAX;
    const uint id = (uint)found & 0xffffffu;
    if (place == 0) {
      greatest = there ? x[id] : -INFINITY;
      distribution = there && isfinite(greatest);
      normaliser = group_log_sum(x, n, greatest, shared);
    }
    if (lane == 0) {
      AT(int, top_ids)[r * TOP + place] = there ? (int)id : -1;
      AT(float, top_values)[r * TOP + place] = there && distribution ? (x[id] - greatest) - normaliser : -INFINITY;
    }
    previous = there ? found + 1 : ULONG_MAX;
  }
  if (lane != 0) return;
  const int target = AT(const int, targets)[r];
  const bool known = distribution && target >= 0 && (uint)target < n && !isnan(x[target]);
  AT(float, logprobs)[r] = known ? (x[target] - greatest) - normaliser : -INFINITY;
}

// y = x - max - log sum e^(x - max) over each row; NaN for a row with a NaN or an infinite maximum. One group for each
// row.
kernel GROUP(LANES) void log_softmax(BUF(x), BUF(y), uint n) {
  local float shared[LANES];
  const size_t r = get_group_id(0);
  global const float *const row = AT(const float, x) + r * n;
  float greatest = -INFINITY;
  float bad = 0.0f;
  for (uint i = get_local_id(0); i < n; i += LANES) {
    greatest = row[i] > greatest ? row[i] : greatest;
    if (isnan(row[i])) bad = 1.0f;
  }
  greatest = group_max(greatest, shared);
  bad = group_max(bad, shared);
  const float normaliser = group_log_sum(row, n, greatest, shared);
  for (uint i = get_local_id(0); i < n; i += LANES)
    AT(float, y)[r * n + i] = bad > 0.0f || isinf(greatest) ? NAN : (row[i] - greatest) - normaliser;
}

// Row r has the edits first[r] ... first[r] + count[r] - 1: x > 0 ? x / penalty : x * penalty, plus offset. Then every
// token whose bit is missing in masks[mask[r]] becomes -inf. One group for each row.
kernel GROUP(LANES) void logit_edits(BUF(logits), BUF(first), BUF(count), BUF(ids), BUF(penalties), BUF(offsets),
                                     BUF(mask), BUF(masks), uint n, uint edits, uint num_masks, uint words) {
  const uint lane = get_local_id(0);
  const size_t r = get_group_id(0);
  global float *const row = AT(float, logits) + r * n;
  const long begin = max(AT(const int, first)[r], 0);
  const long end = min((long)AT(const int, first)[r] + AT(const int, count)[r], (long)edits);
  for (long e = begin + lane; e < end; e += LANES) {
    const int id = AT(const int, ids)[e];
    if (id < 0 || (uint)id >= n) continue;
    const float x = row[id];
    const float penalty = AT(const float, penalties)[e];
    row[id] = (x > 0.0f ? x / penalty : x * penalty) + AT(const float, offsets)[e];
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  const int m = AT(const int, mask)[r];
  if (m < 0 || (uint)m >= num_masks) return;
  global const uint *const allowed = AT(const uint, masks) + (size_t)m * words;
  for (uint i = lane; i < n; i += LANES)
    if ((allowed[i / 32] >> (i % 32) & 1u) == 0) row[i] = -INFINITY;
}

// out[t] = ids[t] if rows[t] < 0; otherwise last_ids[rows[t]], or -2 for a row past its end. An id among `replaced`
// becomes `by`.
kernel void resolve_ids(BUF(ids), BUF(rows), BUF(last_ids), BUF(out), uint n, uint last_rows, int8 replaced, int by) {
  const uint t = get_global_id(0);
  if (t >= n) return;
  const int row = AT(const int, rows)[t];
  int id = row < 0 ? AT(const int, ids)[t] : (uint)row < last_rows ? AT(const int, last_ids)[row] : -2;
  if (any(replaced == (int8)(id))) id = by;
  AT(int, out)[t] = id;
}
