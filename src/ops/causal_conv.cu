// A thread takes neighbouring channels of a few rows, one after the other, and keeps the rows that its next one sees in
// registers. The slots are written by a launch of their own, because rows of several blocks read one; in a decode step,
// where each request has one row, its own thread writes it.
#include "tessera/ops/causal_conv.h"

#include <algorithm>

#include "tessera/ops/cuda_launch.cuh"
#include "tessera/ops/cuda_math.cuh"
#include "tessera/ops/cuda_op.h"
#include "tessera/ops/cuda_state.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kThreads = 128;

template <class T>
struct Conv {
  const T* x;  // [rows, width]
  const T* w;  // [channels, taps]
  T* state;    // [slots, taps - 1, channels]
  T* y;        // [rows, channels]
  std::int64_t num_rows;
  std::int64_t width;
  std::int64_t channels;
  int taps;
  int rows_of_block;
  StateMetadata metadata;
};

// kTaps 0: a number of taps that is known at run time, up to kMaxConvTaps.
template <class T, int N, int kTaps>
struct Channels {
  static constexpr int kMost = kTaps > 0 ? kTaps : static_cast<int>(kMaxConvTaps);

  float weights[kMost][N];
  Pack<T, N> inputs[kMost];  // of a row, the oldest first; the row itself is the last one

  __device__ static int taps(const Conv<T>& c) { return kTaps > 0 ? kTaps : c.taps; }

  __device__ void load_weights(const Conv<T>& c, std::int64_t channel) {
#pragma unroll
    for (int j = 0; j < kMost; ++j)
#pragma unroll
      for (int i = 0; i < N; ++i) weights[j][i] = j < taps(c) ? to_float(c.w[(channel + i) * taps(c) + j]) : 0.0f;
  }

  // The rows before `row`.
  __device__ void load_before(const Conv<T>& c, const StateRequest& request, int row, std::int64_t channel) {
    const int before = taps(c) - 1;
#pragma unroll
    for (int j = 0; j < kMost - 1; ++j) {
      if (j >= before) continue;
      const int at = row - before + j - request.first_row;  // below 0: in the slot, the newest row last
      if (at >= 0) {
        inputs[j] = load_pack<T, N>(c.x + (request.first_row + at) * c.width + channel);
      } else if (request.anew) {
        inputs[j] = Pack<T, N>{};
      } else {
        const std::int64_t kept = static_cast<std::int64_t>(request.slot) * before + before + at;
        inputs[j] = load_pack<T, N>(c.state + kept * c.channels + channel);
      }
    }
  }

  __device__ void convolve(const Conv<T>& c, int row, std::int64_t channel) {
    const int last = taps(c) - 1;
    float sums[N] = {};
    const Pack<T, N> own = load_pack<T, N>(c.x + row * c.width + channel);
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      if (j > last) continue;
      if (j == last) inputs[j] = own;
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] = fmaf(weights[j][i], to_float(inputs[j].at[i]), sums[i]);
    }
    Pack<T, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.at[i] = from_float<T>(sums[i] / (1.0f + expf(-sums[i])));
    store_pack(c.y + row * c.channels + channel, out);
  }

  __device__ void shift(const Conv<T>& c) {
#pragma unroll
    for (int j = 0; j + 1 < kMost; ++j)
      if (j + 1 < taps(c)) inputs[j] = inputs[j + 1];
  }
};

__device__ inline std::int64_t first_channel(int elements) {
  return (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * elements;
}

// Grid [blocks of rows, blocks of channels].
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
  int number = request_of_row(c.metadata, num_requests, row);
  StateRequest request = state_request(c.metadata, number);
  channels.load_before(c, request, row, channel);
  while (true) {
    channels.convolve(c, row, channel);
    if (++row == end) return;
    if (row < request.first_row + request.num_rows) {
      channels.shift(c);
    } else {
      request = state_request(c.metadata, ++number);
      channels.load_before(c, request, row, channel);
    }
  }
}

// The slot's rows move up by the request's new ones. Grid [requests, blocks of channels]; a thread's channels are its
// own, so that it may read a row of the slot after it wrote an earlier one.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) keep_last_rows(const Conv<T> c) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t channel = first_channel(N);
  const int number = static_cast<int>(blockIdx.x);
  if (number >= count_requests_on_device(c.metadata, c.num_rows) || channel >= c.channels) return;
  const StateRequest request = state_request(c.metadata, number);
  if (request.slot == 0) return;
  const int kept = c.taps - 1;
  T* const slot = c.state + static_cast<std::int64_t>(request.slot) * kept * c.channels + channel;
  const std::int64_t end = request.first_row + request.num_rows;
  for (int i = 0; i < kept; ++i) {
    const int back = kept - i;  // rows before the request's end
    Pack<T, N> value{};
    if (back <= request.num_rows)
      value = load_pack<T, N>(c.x + (end - back) * c.width + channel);
    else if (!request.anew)
      value = load_pack<T, N>(slot + (i + request.num_rows) * c.channels);
    store_pack(slot + i * c.channels, value);
  }
}

// Both for requests of one row each. Grid [rows, blocks of channels].
template <class T, int N, int kTaps>
__global__ void __launch_bounds__(kThreads) convolve_decodes(const Conv<T> c) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t channel = first_channel(N);
  const int row = static_cast<int>(blockIdx.x);
  if (row >= count_requests_on_device(c.metadata, c.num_rows) || channel >= c.channels) return;
  Channels<T, N, kTaps> channels;
  channels.load_weights(c, channel);
  const StateRequest request = state_request(c.metadata, row);
  channels.load_before(c, request, request.first_row, channel);
  channels.convolve(c, request.first_row, channel);
  if (request.slot == 0) return;
  const int kept = channels.taps(c) - 1;
  T* const slot = c.state + static_cast<std::int64_t>(request.slot) * kept * c.channels + channel;
#pragma unroll
  for (int j = 1; j < Channels<T, N, kTaps>::kMost; ++j)
    if (j <= kept) store_pack(slot + (j - 1) * c.channels, channels.inputs[j]);
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
  c.rows_of_block = static_cast<int>(std::clamp<std::int64_t>(c.num_rows / 64, 1, 16));
  const LaunchShape rows = shape(ceil_div(c.num_rows, c.rows_of_block));
  const LaunchShape requests = shape(std::min(c.num_rows, c.metadata.max_requests));
  return make_cuda_op("causal_conv", [=](cudaStream_t stream) {
    launch_early(convolve_rows<T, N, kTaps>, rows, stream, c);
    launch_early(keep_last_rows<T, N>, requests, stream, c);
  });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const StateMetadata metadata = TRY(find_state_plan(args));
  return dispatch_dtype(args.operands[0].dtype, "causal_conv", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const Conv<T> c{.x = args.operands[0].as<T>(),
                    .w = args.operands[1].as<T>(),
                    .state = args.operands[2].as<T>(),
                    .y = args.results[0].as<T>(),
                    .num_rows = args.operands[0].dim(0),
                    .width = args.operands[0].dim(1),
                    .channels = args.operands[1].dim(0),
                    .taps = static_cast<int>(args.operands[1].dim(1)),
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
