// Turns logits into tokens, by the greatest logit or by an exact draw. All values are float or int; X and Y are not
// used.

#define NONE 0xffffffffu

// Returns e^x for the integer weights of tokens, with the engine's own steps, so that draws agree with other devices'.
float weight_exp(float x) {
  x = clamp(x, -104.0f, 89.0f);
  const float magic = 12582912.0f;
  const float shifted = fma(x, 1.44269504088896341f, magic);
  const float n = shifted - magic;
  float r = fma(n, -0.693145751953125f, x);
  r = fma(n, -1.42860677e-6f, r);
  float p = 1.0f / 5040.0f;
  p = fma(p, r, 1.0f / 720.0f);
  p = fma(p, r, 1.0f / 120.0f);
  p = fma(p, r, 1.0f / 24.0f);
  p = fma(p, r, 1.0f / 6.0f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  const int exponent = as_int(shifted) - as_int(magic);
  const int half_exponent = exponent >> 1;
  return p * as_float((uint)(half_exponent + 127) << 23) * as_float((uint)(exponent - half_exponent + 127) << 23);
}

// Returns the lowest index of the greatest value of x[0, n) to all items; NONE if all values are NaN or -inf.
uint group_argmax(global const float *x, uint n, local float *values, local uint *indices) {
  const uint lane = get_local_id(0);
  float best = -INFINITY;
  uint at = NONE;
  for (uint i = lane; i < n; i += LANES)
    if (x[i] > best) {
      best = x[i];
      at = i;
    }
  values[lane] = best;
  indices[lane] = at;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = LANES / 2; step > 0; step /= 2) {
    if (lane < step) {
      const float other = values[lane + step];
      const uint other_at = indices[lane + step];
      if (other > values[lane] || (other == values[lane] && other_at < indices[lane])) {
        values[lane] = other;
        indices[lane] = other_at;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const uint result = indices[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return result;
}

kernel GROUP(LANES) void argmax(BUF(x), BUF(out), uint n) {
  local float values[LANES];
  local uint indices[LANES];
  const size_t r = get_group_id(0);
  const uint best = group_argmax(AT(const float, x) + r * n, n, values, indices);
  if (get_local_id(0) != 0) return;
  // If no value is above -inf, the result is the first -inf, or 0 if all are NaN.
  uint found = best;
  if (best == NONE) {
    found = 0;
    for (uint i = n; i > 0; --i)
      if (AT(const float, x)[r * n + i - 1] == -INFINITY) found = i - 1;
  }
  AT(int, out)[r] = (int)found;
}

// A row as a distribution in the order of the draw: by descending logit, ties by id. Weights are integers, round(2^42 *
// e^((logit - greatest) / temperature)), so that sums do not depend on their order.
#define REACH 30.0f
#define KEY_BITS 56  // 32 bits of the logit, 24 of the id
#define DIGIT_BITS 4
#define DIGITS 16

typedef struct {
  global const float *logits;
  uint vocab;
  float greatest;
  float temperature;
} row_t;

bool weigh(const row_t *row, uint id, float *nats) {
  *nats = (row->logits[id] - row->greatest) / row->temperature;
  return *nats > -REACH;  // false for NaN
}

ulong units(float nats) { return convert_ulong_rte(weight_exp(nats) * 4398046511104.0f); }

ulong group_total(ulong v, local ulong *shared) {
  const uint lane = get_local_id(0);
  shared[lane] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint step = LANES / 2; step > 0; step /= 2) {
    if (lane < step) shared[lane] += shared[lane + step];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const ulong total = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}

// Takes the fewest first tokens whose number (by_count) or weight is at least `need`. Returns their weight, and in
// `last` the id of the last one, which it finds digit by digit of the keys. Precondition: all tokens together reach
// `need`.
ulong first_tokens(const row_t *row, ulong need, bool by_count, uint *last, local ulong *weights, local uint *counts,
                   local ulong *digit_weights, local uint *digit_counts) {
  const uint lane = get_local_id(0);
  ulong prefix = 0;  // the key's digits found so far
  ulong before = 0;  // weight of the tokens with keys below the prefix
  for (int shift = KEY_BITS - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
    for (uint d = 0; d < DIGITS; ++d) {
      weights[d * LANES + lane] = 0;
      counts[d * LANES + lane] = 0;
    }
    for (uint id = lane; id < row->vocab; id += LANES) {
      const ulong key = order_key(row->logits[id], id);
      float nats;
      if (key >> shift >> DIGIT_BITS != prefix || !weigh(row, id, &nats)) continue;
      const uint d = (uint)(key >> shift) & (DIGITS - 1);
      weights[d * LANES + lane] += units(nats);
      counts[d * LANES + lane] += 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < DIGITS) {
      ulong weight = 0;
      uint count = 0;
      for (uint l = 0; l < LANES; ++l) {
        weight += weights[lane * LANES + l];
        count += counts[lane * LANES + l];
      }
      digit_weights[lane] = weight;
      digit_counts[lane] = count;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint d = 0;
    for (; d + 1 < DIGITS; ++d) {
      const ulong here = by_count ? digit_counts[d] : digit_weights[d];
      if (here >= need) break;
      need -= here;
      before += digit_weights[d];
    }
    prefix = prefix << DIGIT_BITS | d;
    if (shift == 0) before += digit_weights[d];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  *last = (uint)prefix & 0xffffffu;
  return before;
}

// Philox4x32-10 (Salmon et al., SC 2011): key = (low, high) half of the seed, counter = (choice, position, 0, 0).
ulong sampling_bits(ulong seed, uint choice, uint position) {
  uint4 c = (uint4)(choice, position, 0, 0);
  uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
  for (int round = 0; round < 10; ++round) {
    const ulong a = (ulong)0xD2511F53u * c.x;
    const ulong b = (ulong)0xCD9E8D57u * c.z;
    c = (uint4)((uint)(b >> 32) ^ c.y ^ key.x, (uint)b, (uint)(a >> 32) ^ c.w ^ key.y, (uint)a);
    key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
  }
  return (ulong)c.x << 32 | c.y;
}

// Samples one token of each row. One group for each row; n is at most 2^21.
kernel GROUP(LANES) void sample(BUF(logits), BUF(temperature), BUF(top_k), BUF(top_p), BUF(min_p), BUF(seed),
                                BUF(choice), BUF(position), BUF(out), uint n) {
  local float values[LANES];
  local uint indices[LANES];
  local ulong totals[LANES];
  local ulong weights[DIGITS * LANES];
  local uint counts[DIGITS * LANES];
  local ulong digit_weights[DIGITS];
  local uint digit_counts[DIGITS];
  const size_t r = get_group_id(0);
  const uint lane = get_local_id(0);
  row_t row = {AT(const float, logits) + r * n, n, 0.0f, AT(const float, temperature)[r]};
  const uint best = group_argmax(row.logits, n, values, indices);
  if (best == NONE || isinf(row.logits[best]) || !(row.temperature > 0.0f)) {
    if (lane != 0) return;
    uint found = best;
    if (best == NONE) {
      found = 0;
      for (uint i = n; i > 0; --i)
        if (row.logits[i - 1] == -INFINITY) found = i - 1;
    }
    AT(int, out)[r] = (int)found;
    return;
  }
  row.greatest = row.logits[best];
  ulong mine = 0;
  ulong my_count = 0;
  for (uint id = lane; id < n; id += LANES) {
    float nats;
    if (!weigh(&row, id, &nats)) continue;
    mine += units(nats);
    my_count += 1;
  }
  ulong weight = group_total(mine, totals);  // weight of the tokens kept so far
  const ulong count = group_total(my_count, totals);
  uint last = 0;
  const int k = AT(const int, top_k)[r];
  if (k > 0 && (ulong)k < count)
    weight = first_tokens(&row, (ulong)k, true, &last, weights, counts, digit_weights, digit_counts);
  const float p = AT(const float, top_p)[r];
  if (p < 1.0f) {
    // ceil(p * weight) in integers: the 24 bits of p times the weight, so that no double is needed.
    ulong need = 1;
    if (p > 0.0f) {
      int exponent;
      const ulong mantissa = (ulong)(frexp(p, &exponent) * 16777216.0f);  // p = mantissa * 2^(exponent - 24)
      const int down = 24 - exponent;                                     // at least 24
      const ulong high = mul_hi(mantissa, weight);
      const ulong low = mantissa * weight;
      if (down < 64) {
        const ulong below = low & (((ulong)1 << down) - 1);
        need = (high << (64 - down) | low >> down) + (below != 0 ? 1 : 0);
      }
      need = clamp(need, (ulong)1, weight);
    }
    weight = first_tokens(&row, need, false, &last, weights, counts, digit_weights, digit_counts);
  }
  const float least_p = AT(const float, min_p)[r];
  if (least_p > 0.0f) {
    const float least = fmin(log(least_p), 0.0f);
    if (least > -REACH) {
      mine = 0;
      for (uint id = lane; id < n; id += LANES) {
        float nats;
        if (weigh(&row, id, &nats) && nats >= least) mine += units(nats);
      }
      weight = min(weight, group_total(mine, totals));
    }
  }
  const ulong bits = sampling_bits((ulong)AT(const long, seed)[r], (uint)AT(const int, choice)[r],
                                   (uint)AT(const int, position)[r]);
  first_tokens(&row, mul_hi(bits, weight) + 1, false, &last, weights, counts, digit_weights, digit_counts);
  if (lane == 0) AT(int, out)[r] = (int)last;
}
