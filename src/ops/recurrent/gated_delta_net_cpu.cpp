// Computes the gated delta net on the CPU. Each thread takes the next free head of a request.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/contract/state_plan.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_norm.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/recurrent/delta_net_head.h"

namespace tessera {
namespace {

// For requests with at least this many rows, the chunked form is faster than the recurrent form.
constexpr std::int64_t kLeastChunkRows = 8;

template <class T>
struct Problem {
  const T* qkv;          // [rows, 2 · key_heads · key_dim + heads · value_dim]
  const T* ba;           // [rows, 2 · heads]
  const float* a_log;    // [heads]
  const float* dt_bias;  // [heads]
  float* state;          // [slots, heads, key_dim, value_dim]
  T* draft_rows;         // [slots, DraftLayout]
  T* y;                  // [rows, heads · value_dim]
  std::int64_t num_rows;
  std::int64_t key_heads;
  std::int64_t heads;
  std::int64_t held_drafts;
  DeltaSizes sizes;
  StateMetadata metadata;
  std::byte* workspace;  // [workers]: scratch_bytes() for each worker
  std::int64_t workers;
  bool deterministic;

  std::int64_t keys_width() const { return key_heads * sizes.key_dim; }
  std::int64_t width() const { return 2 * keys_width() + heads * sizes.value_dim; }
};

// Pointers to the parts of a draft in a slot. DraftLayout (gated_delta_net.h) describes the slot's layout.
template <class T>
struct DraftPlace {
  T* keys;
  T* values;
  T* ba;
};
// Returns the place of a draft. `number` is the draft's index in the slot, and `position` is its position in the
// sequence.
template <class T>
DraftPlace<T> draft_place(const Problem<T>& p, std::int64_t request, std::int64_t number, std::int64_t position) {
  const DraftLayout layout{.drafts = static_cast<int>(p.held_drafts),
                           .keys = static_cast<int>(p.keys_width()),
                           .gates = static_cast<int>(2 * p.heads),
                           .values = static_cast<int>(p.heads * p.sizes.value_dim)};
  T* const slot = p.draft_rows + static_cast<std::int64_t>(p.metadata.slots[request]) * layout.size();
  T* const keys = slot + layout.keys_at(static_cast<int>(position));
  return {keys, slot + layout.values_at(static_cast<int>(number)), keys + layout.keys};
}

// Consecutive rows of the forward, or one draft in a slot.
template <class T>
struct SourceRows {
  const T* queries;  // null: the row only advances the state, so its queries are not used
  const T* keys;
  const T* values;
  const T* ba;
  std::int64_t stride = 0;     // elements from one row's keys to the next row's
  std::int64_t ba_stride = 0;  // elements from one row of ba to the next
};
template <class T>
SourceRows<T> forward_rows(const Problem<T>& p, std::int64_t first) {
  const T* const queries = p.qkv + first * p.width();
  return {queries,    queries + p.keys_width(), queries + 2 * p.keys_width(), p.ba + first * 2 * p.heads, p.width(),
          2 * p.heads};
}

std::int64_t scratch_floats(const DeltaSizes& sizes) {
  return kDeltaChunk * (3 * sizes.key_dim + 2 * sizes.value_dim + 2 + 2 * kDeltaChunk) +
         sizes.key_dim * sizes.value_dim;
}
std::int64_t scratch_bytes(const DeltaSizes& sizes) {
  return align_up(scratch_floats(sizes) * static_cast<std::int64_t>(sizeof(float)));
}

struct Buffers {
  DeltaRows rows;
  DeltaScratch scratch;
  float* no_state;  // [key_dim, value_dim]: the state of drafts and of requests without a slot, which is not kept
};

Buffers make_buffers(float* at, const DeltaSizes& sizes) {
  const auto take = [&](std::int64_t floats) {
    float* const taken = at;
    at += kDeltaChunk * floats;
    return taken;
  };
  Buffers buffers{};
  buffers.rows.queries = take(sizes.key_dim);
  buffers.rows.keys = take(sizes.key_dim);
  buffers.scratch.keys_t = take(sizes.key_dim);
  buffers.rows.values = take(sizes.value_dim);
  buffers.rows.out = take(sizes.value_dim);
  buffers.scratch.keys_keys = take(kDeltaChunk);
  buffers.scratch.query_keys = take(kDeltaChunk);
  buffers.rows.gates = take(1);
  buffers.rows.betas = take(1);
  buffers.no_state = at;
  return buffers;
}

// Normalises x to unit length and multiplies it by `scale`: y = x · scale / √(Σx² + eps).
template <class T>
TESSERA_INLINE void load_unit(const T* x, float* y, std::int64_t n, float scale) {
  const float factor = scale / std::sqrt(sum_of_squares(x, n) + kDeltaNormEps);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(x[i]) * factor;
}

// Loads the first `count` rows of `from` for one head, as float32.
template <class T>
TESSERA_CPU_CLONES void load_rows(const Problem<T>& p, const SourceRows<T>& from, std::int64_t count, std::int64_t head,
                                  const DeltaRows& rows) {
  const std::int64_t dk = p.sizes.key_dim;
  const std::int64_t dv = p.sizes.value_dim;
  const std::int64_t key_head = head / (p.heads / p.key_heads);
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(dk));
  for (std::int64_t r = 0; r < count; ++r) {
    if (from.queries == nullptr)
      std::fill_n(rows.queries + r * dk, dk, 0.0f);
    else
      load_unit(from.queries + r * from.stride + key_head * dk, rows.queries + r * dk, dk, query_scale);
    load_unit(from.keys + r * from.stride + key_head * dk, rows.keys + r * dk, dk, 1.0f);
    const T* const value = from.values + r * from.stride + head * dv;
#pragma omp simd
    for (std::int64_t i = 0; i < dv; ++i) rows.values[r * dv + i] = to_float(value[i]);
  }
}

// Computes the gates in double. Precision matters, because sums of g are exponents, and double costs little, because
// there is only one gate for each row and head.
template <class T>
void load_gates(const Problem<T>& p, const SourceRows<T>& from, std::int64_t count, std::int64_t head,
                const DeltaRows& rows) {
  const double rate = std::exp(static_cast<double>(p.a_log[head]));
  for (std::int64_t r = 0; r < count; ++r) {
    const T* const ba = from.ba + r * from.ba_stride;
    const double a = static_cast<double>(to_float(ba[p.heads + head])) + static_cast<double>(p.dt_bias[head]);
    const double softplus = a > kSoftplusLinear ? a : std::log1p(std::exp(a));
    rows.gates[r] = static_cast<float>(-rate * softplus);
    rows.betas[r] = sigmoid(to_float(ba[head]));
  }
}

template <class T>
TESSERA_CPU_CLONES void store_rows(const Problem<T>& p, std::int64_t first, std::int64_t count, std::int64_t head,
                                   const DeltaRows& rows) {
  const std::int64_t dv = p.sizes.value_dim;
  for (std::int64_t r = 0; r < count; ++r) {
    T* const y = p.y + ((first + r) * p.heads + head) * dv;
#pragma omp simd
    for (std::int64_t i = 0; i < dv; ++i) y[i] = from_float<T>(rows.out[r * dv + i]);
  }
}

template <class T>
void run_head(const Problem<T>& p, std::int64_t request, std::int64_t head, const Buffers& own) {
  const std::int64_t state_floats = p.sizes.key_dim * p.sizes.value_dim;
  float* state = p.metadata.keeps_state(request) ? p.state + (p.metadata.slots[request] * p.heads + head) * state_floats
                                                 : own.no_state;
  if (p.metadata.starts_anew(request)) std::fill_n(state, state_floats, 0.0f);
  const std::int64_t num_rows = p.metadata.num_rows(request);
  const auto load = [&](const SourceRows<T>& from, std::int64_t count) {
    load_rows(p, from, count, head, own.rows);
    load_gates(p, from, count, head, own.rows);
  };
  const std::int64_t accepted = p.metadata.accepted_drafts(request);
  for (std::int64_t i = 0; i < accepted; ++i) {
    const DraftPlace<T> draft = draft_place(p, request, i, p.metadata.first_position(request) - accepted + i);
    load({.queries = nullptr, .keys = draft.keys, .values = draft.values, .ba = draft.ba}, 1);
    recur_delta_row(own.rows, 0, p.sizes, state);
  }
  const bool chunked = !p.deterministic && chunks_delta(p.sizes) && num_rows >= kLeastChunkRows;
  const std::int64_t kept_rows = p.metadata.kept_rows(request);
  const std::int64_t checkpoint_rows = p.metadata.checkpoint_rows[request];
  std::int64_t count = 0;
  for (std::int64_t done = 0; done < num_rows; done += count) {
    if (done == kept_rows && state != own.no_state)
      state = std::copy_n(state, state_floats, own.no_state) - state_floats;
    if (done > 0 && done == checkpoint_rows)
      std::copy_n(state, state_floats,
                  p.state + (p.metadata.checkpoint_slots[request] * p.heads + head) * state_floats);
    const std::int64_t first = p.metadata.first_row(request) + done;
    const std::int64_t stop = done < checkpoint_rows ? checkpoint_rows : done < kept_rows ? kept_rows : num_rows;
    count = std::min(kDeltaChunk, stop - done);
    load(forward_rows(p, first), count);
    if (chunked)
      run_delta_chunk(own.rows, count, p.sizes, own.scratch, state);
    else
      for (std::int64_t r = 0; r < count; ++r) recur_delta_row(own.rows, r, p.sizes, state);
    store_rows(p, first, count, head, own.rows);
  }
}

// Stores the request's drafts in its slot.
template <class T>
void keep_drafts(const Problem<T>& p, std::int64_t request) {
  if (!p.metadata.keeps_state(request)) return;
  for (std::int64_t i = 0; i < p.metadata.drafts[request]; ++i) {
    const std::int64_t r = p.metadata.kept_rows(request) + i;
    const SourceRows<T> from = forward_rows(p, p.metadata.first_row(request) + r);
    const DraftPlace<T> to = draft_place(p, request, i, p.metadata.first_position(request) + r);
    std::copy_n(from.keys, p.keys_width(), to.keys);
    std::copy_n(from.values, p.heads * p.sizes.value_dim, to.values);
    std::copy_n(from.ba, 2 * p.heads, to.ba);
  }
}

template <class T>
void run(const Problem<T>& p) {
  const std::int64_t num_requests = count_requests(p.metadata, p.num_rows);
  const std::int64_t items = num_requests * p.heads;
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min(p.workers, items), 1, [&](std::int64_t begin, std::int64_t) {
    const Buffers own = make_buffers(reinterpret_cast<float*>(p.workspace + begin * scratch_bytes(p.sizes)), p.sizes);
    for (std::int64_t item = next++; item < items; item = next++) run_head(p, item / p.heads, item % p.heads, own);
  });
  // Every head of a request reads the request's accepted drafts. So the new drafts replace the accepted drafts only
  // after all heads have been computed.
  if (p.held_drafts > 0)
    for (std::int64_t request = 0; request < num_requests; ++request) keep_drafts(p, request);
}

std::int64_t workers(const Device& device) { return std::max(1, device.properties().threads); }

DeltaSizes sizes_of(const TensorView& state) { return {.key_dim = state.dim(2), .value_dim = state.dim(3)}; }

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  return static_cast<std::size_t>(workers(args.device) * scratch_bytes(sizes_of(args.operands[4])));
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const StateMetadata metadata = TRY(find_state_plan(args))->metadata();
  return dispatch_dtype(args.operands[0].dtype, "gated_delta_net", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const Problem<T> p{.qkv = args.operands[0].as<T>(),
                       .ba = args.operands[1].as<T>(),
                       .a_log = args.operands[2].as<float>(),
                       .dt_bias = args.operands[3].as<float>(),
                       .state = args.operands[4].as<float>(),
                       .draft_rows = args.operands.size() > 5 ? args.operands[5].as<T>() : nullptr,
                       .y = args.results[0].as<T>(),
                       .num_rows = args.operands[0].dim(0),
                       .key_heads = args.node.attribute_or("key_heads", std::int64_t{1}),
                       .heads = args.operands[4].dim(1),
                       .held_drafts = args.node.attribute_or("drafts", std::int64_t{0}),
                       .sizes = sizes_of(args.operands[4]),
                       .metadata = metadata,
                       .workspace = args.workspace.raw(),
                       .workers = workers(args.device),
                       .deterministic = args.context.limits.deterministic};
    return make_cpu_op("gated_delta_net", [p] { run(p); });
  });
}

}  // namespace

const KernelDef kGatedDeltaNetCpu{.op = "gated_delta_net",
                                  .name = "cpu",
                                  .bind = bind,
                                  .workspace_bytes = workspace_bytes,
                                  .planner = &kStatePlanner};

}  // namespace tessera
