// Computes causal_conv on CUDA. A thread processes neighbouring channels of up to kTileRows rows, and loads the inputs
// of all these rows before it computes the first row. A second launch writes the requests' slots of the state, because
// blocks of the first launch still read them. In a decode step requests have few rows, so one launch is enough: a
// thread computes all rows of its request, and then writes the slot.
#include "tessera/ops/recurrent/causal_conv.h"

#include <algorithm>

#include "tessera/ops/cuda/cuda_activation.cuh"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/recurrent/cuda_state.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kTileRows = 8;

template <class T>
struct Conv {
  const T* x;  // [rows, width]
  const T* w;  // [channels, taps]
  T* state;    // [slots, slot_rows, channels]
  T* y;        // [rows, channels]
  std::int64_t num_rows;
  std::int64_t width;
  std::int64_t channels;
  int taps;
  int slot_rows;  // rows in a slot: taps - 1, plus one for each draft that a slot can hold
  int rows_of_block;
  StateMetadata metadata;

  __device__ T* slot(int number, std::int64_t channel) const {
    return state + static_cast<std::int64_t>(number) * slot_rows * channels + channel;
  }
};

// The weights of a thread's channels. kTaps = 0 means that the number of taps, up to kMaxConvTaps, is only known at run
// time. Arrays have room for the maximum number of taps, and their last element belongs to the newest row. So if there
// are fewer taps, the first elements are not used.
template <class T, int N, int kTaps>
struct Channels {
  static constexpr int kMost = kTaps > 0 ? kTaps : static_cast<int>(kMaxConvTaps);
  static constexpr int kBefore = kMost - 1;
  template <int kRows>
  using Inputs = Pack<T, N>[kBefore + kRows];

  float weights[kMost][N];

  __device__ static int taps(const Conv<T>& c) { return kTaps > 0 ? kTaps : c.taps; }
  __device__ static int first_tap(const Conv<T>& c) { return kMost - taps(c); }

  __device__ void load_weights(const Conv<T>& c, std::int64_t channel) {
    if constexpr (kTaps > 0) {
      Pack<T, N> packs[kTaps];
#pragma unroll
      for (int i = 0; i < kTaps; ++i) packs[i] = load_pack<T, N>(c.w + channel * kTaps + i * N);
#pragma unroll
      for (int i = 0; i < kTaps * N; ++i) weights[i % kTaps][i / kTaps] = to_float(packs[i / N].at[i % N]);
    } else {
#pragma unroll
      for (int j = 0; j < kMost; ++j)
#pragma unroll
        for (int i = 0; i < N; ++i)
          weights[j][i] = j < first_tap(c) ? 0.0f : to_float(c.w[(channel + i) * c.taps + j - first_tap(c)]);
    }
  }

  // Loads the inputs of `count` rows of a request, beginning with `row`.
  template <int kRows>
  __device__ static void load_inputs(const Conv<T>& c, const StateRequest& request, int row, int count,
                                     std::int64_t channel, Inputs<kRows>& inputs) {
#pragma unroll
    for (int i = 0; i < kBefore + kRows; ++i) {
      const int at = row - request.first_row + i - kBefore;  // negative: a row of the slot; -1: its last accepted row
      inputs[i] = Pack<T, N>{};
      if (i < first_tap(c) || i - kBefore >= count) continue;
      if (at >= 0) {
        inputs[i] = load_pack<T, N>(c.x + (request.first_row + at) * c.width + channel);
      } else if (!request.anew) {
        inputs[i] = load_pack<T, N>(c.slot(request.slot, channel) + (taps(c) - 1 + request.accepted + at) * c.channels);
      }
    }
  }

  template <int kRows>
  __device__ void convolve(const Conv<T>& c, int row, int count, std::int64_t channel,
                           const Inputs<kRows>& inputs) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= count) break;
      float sums[N] = {};
#pragma unroll
      for (int j = 0; j < kMost; ++j) {
        if (j < first_tap(c)) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] = fmaf(weights[j][i], to_float(inputs[r + j].at[i]), sums[i]);
      }
      Pack<T, N> out;
#pragma unroll
      for (int i = 0; i < N; ++i) out.at[i] = from_float<T>(Silu{}(sums[i]));
      store_pack(c.y + static_cast<std::int64_t>(row + r) * c.channels + channel, out);
    }
  }
};

__device__ inline std::int64_t first_channel(int elements) {
  return (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * elements;
}

// Computes the convolution. gridDim.x counts blocks of rows, and gridDim.y counts blocks of channels.
template <class T, int N, int kTaps>
__global__ void __launch_bounds__(kThreads) convolve_rows(const Conv<T> c) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t channel = first_channel(N);
  const int num_requests = count_requests_on_device(c.metadata, c.num_rows);
  const int num_rows = c.metadata.lengths.query_starts[num_requests];
  int row = static_cast<int>(blockIdx.x) * c.rows_of_block;
  const int end = min(num_rows, row + c.rows_of_block);
  if (channel >= c.channels || row >= end) return;
  Channels<T, N, kTaps> channels;
  channels.load_weights(c, channel);
  for (int number = request_of_row(c.metadata, num_requests, row); row < end; ++number) {
    const StateRequest request = state_request(c.metadata, number);
    const int count = min(end, request.first_row + request.num_rows) - row;
    typename Channels<T, N, kTaps>::template Inputs<kTileRows> inputs;
    channels.template load_inputs<kTileRows>(c, request, row, count, channel, inputs);
    channels.template convolve<kTileRows>(c, row, count, channel, inputs);
    row += count;
  }
}

// Writes to `to` the last taps - 1 rows of the sequence after the request's first `new_rows` rows. If new_rows is less
// than taps - 1, the newest rows that the request's slot holds (accepted drafts included) fill the gap at the front. If
// the request starts in this forward, zeros fill the gap. `to` may be the request's slot: only one thread accesses a
// channel of the slot, so this thread may read a row of the slot after it has written an earlier row.
template <class T, int N>
__device__ inline void keep_rows(const Conv<T>& c, const StateRequest& request, int new_rows, std::int64_t channel,
                                 T* to) {
  const int kept = c.taps - 1;
  const std::int64_t end = request.first_row + new_rows;
  for (int i = 0; i < kept; ++i) {
    const int back = kept - i;  // row i of `to` becomes the row `back` rows before `end`
    Pack<T, N> value{};
    if (back <= new_rows)
      value = load_pack<T, N>(c.x + (end - back) * c.width + channel);
    else if (!request.anew)
      value = load_pack<T, N>(c.slot(request.slot, channel) + (i + request.accepted + new_rows) * c.channels);
    store_pack(to + i * c.channels, value);
  }
}

// Makes the slot hold the last taps - 1 rows before the request's new drafts, and then the drafts. Writes the
// checkpoint first, because it may read rows of the slot.
template <class T, int N>
__device__ inline void keep_state(const Conv<T>& c, const StateRequest& request, std::int64_t channel) {
  if (request.checkpoint_rows > 0)
    keep_rows<T, N>(c, request, request.checkpoint_rows, channel, c.slot(request.checkpoint_slot, channel));
  if (request.slot == 0) return;
  T* const slot = c.slot(request.slot, channel);
  keep_rows<T, N>(c, request, request.kept_rows, channel, slot);
  const std::int64_t end = request.first_row + request.kept_rows;
  for (int i = 0; i < request.num_rows - request.kept_rows; ++i)
    store_pack(slot + (c.taps - 1 + i) * c.channels, load_pack<T, N>(c.x + (end + i) * c.width + channel));
}

// Updates the slots. gridDim.x counts requests, and gridDim.y counts blocks of channels.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) keep_last_rows(const Conv<T> c) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t channel = first_channel(N);
  const int number = static_cast<int>(blockIdx.x);
  if (number >= count_requests_on_device(c.metadata, c.num_rows) || channel >= c.channels) return;
  keep_state<T, N>(c, state_request(c.metadata, number), channel);
}

// Computes the convolution and updates the slots in decode steps, in which a request has one row and its drafts.
// gridDim.x is the number of rows, and gridDim.y counts blocks of channels. A block processes one request, so blocks
// past the number of requests have no work.
template <class T, int N, int kTaps>
__global__ void __launch_bounds__(kThreads) convolve_decodes(const Conv<T> c) {
  constexpr int kRowsAtOnce = 4;
  let_next_begin();
  wait_for_previous();
  const std::int64_t channel = first_channel(N);
  const int number = static_cast<int>(blockIdx.x);
  if (number >= count_requests_on_device(c.metadata, c.num_rows) || channel >= c.channels) return;
  Channels<T, N, kTaps> channels;
  channels.load_weights(c, channel);
  const StateRequest request = state_request(c.metadata, number);
  if (request.num_rows > 1) {
    for (int done = 0; done < request.num_rows; done += kRowsAtOnce) {
      const int row = request.first_row + done;
      const int count = min(kRowsAtOnce, request.num_rows - done);
      typename Channels<T, N, kTaps>::template Inputs<kRowsAtOnce> inputs;
      channels.template load_inputs<kRowsAtOnce>(c, request, row, count, channel, inputs);
      channels.template convolve<kRowsAtOnce>(c, row, count, channel, inputs);
    }
    keep_state<T, N>(c, request, channel);
    return;
  }
  typename Channels<T, N, kTaps>::template Inputs<1> inputs;
  channels.template load_inputs<1>(c, request, request.first_row, 1, channel, inputs);
  channels.template convolve<1>(c, request.first_row, 1, channel, inputs);
  if (request.slot == 0) return;
  const int first = channels.first_tap(c) + 1;  // the oldest row is dropped
  T* const slot = c.slot(request.slot, channel);
#pragma unroll
  for (int i = 1; i < Channels<T, N, kTaps>::kMost; ++i)
    if (i >= first) store_pack(slot + (i - first) * c.channels, inputs[i]);
}

template <class T, int N, int kTaps>
std::unique_ptr<BoundOp> make_conv(Conv<T> c, const ForwardContext& context) {
  const auto across = static_cast<unsigned>(ceil_div(c.channels, kThreads * N));
  const auto shape = [&](std::int64_t blocks) {
    return LaunchShape{.grid = dim3(static_cast<unsigned>(blocks), across), .block = dim3(kThreads)};
  };
  if (context.batch_kind == BatchKind::kDecode) {
    const LaunchShape rows = shape(c.num_rows);
    return make_cuda_op(
        "causal_conv", [=](cudaStream_t stream) { launch_early(convolve_decodes<T, N, kTaps>, rows, stream, c); }, 1);
  }
  c.rows_of_block = static_cast<int>(std::clamp<std::int64_t>(c.num_rows / 64, 1, kTileRows));
  const LaunchShape rows = shape(ceil_div(c.num_rows, c.rows_of_block));
  const LaunchShape requests = shape(std::min(c.num_rows, c.metadata.max_requests));
  return make_cuda_op("causal_conv", [=](cudaStream_t stream) {
    launch_early(convolve_rows<T, N, kTaps>, rows, stream, c);
    launch_early(keep_last_rows<T, N>, requests, stream, c);
  });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const StateMetadata metadata = TRY(find_state_plan(args))->metadata();
  return dispatch_dtype(args.operands[0].dtype, "causal_conv", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const Conv<T> c{.x = args.operands[0].as<T>(),
                    .w = args.operands[1].as<T>(),
                    .state = args.operands[2].as<T>(),
                    .y = args.results[0].as<T>(),
                    .num_rows = args.operands[0].dim(0),
                    .width = args.operands[0].dim(1),
                    .channels = args.operands[1].dim(0),
                    .taps = static_cast<int>(args.operands[1].dim(1)),
                    .slot_rows = static_cast<int>(args.operands[2].dim(1)),
                    .rows_of_block = 1,
                    .metadata = metadata};
    constexpr int N = kPackSize<T>;
    if (c.taps == 4 && c.width % N == 0 && c.channels % N == 0) return make_conv<T, N, 4>(c, args.context);
    return make_conv<T, 1, 0>(c, args.context);
  });
}

}  // namespace

const KernelDef kCausalConvCuda{.op = "causal_conv", .name = "cuda", .bind = bind, .planner = &kStatePlanner};

}  // namespace tessera
