// The kernels of the collectives over mailboxes (peer_exchange.h). Each launch is one turn, and each turn uses the next
// buffer of every mailbox. Values are sent as Units of 4 or 16 bytes. A thread sends its units to all other ranks
// before it waits for the units of those ranks, so that ranks that wait for each other cannot deadlock.
//
// Values are added in rank order in float32, and the sum is rounded once. A rank applies present() to its own values
// before it sends them, and also before it adds them itself. So every rank adds the same bits. present() writes 0 in
// place of the word that means that nothing has arrived yet.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "tessera/base/status.h"
#include "tessera/comm/peer_exchange.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"

namespace tessera::cuda {

inline constexpr int kPeerThreads = 512;
// How often a waiting thread looks for data between two reads of the stop flag. The flag is in host memory, and a read
// takes a microsecond.
inline constexpr int kLooksBetweenStops = 1 << 14;

template <int kWords>
struct alignas(4 * kWords) Unit {
  std::uint32_t words[kWords];
};

__device__ inline Unit<1> load_mail(const Unit<1>* from) {
  Unit<1> unit;
  asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(unit.words[0]) : "l"(from) : "memory");
  return unit;
}
__device__ inline Unit<4> load_mail(const Unit<4>* from) {
  Unit<4> unit;
  asm volatile("ld.relaxed.sys.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.words[0]), "=r"(unit.words[1]), "=r"(unit.words[2]), "=r"(unit.words[3])
               : "l"(from)
               : "memory");
  return unit;
}
__device__ inline void store_mail(Unit<1>* to, const Unit<1>& unit) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(to), "r"(unit.words[0]) : "memory");
}
__device__ inline void store_mail(Unit<4>* to, const Unit<4>& unit) {
  asm volatile("st.relaxed.sys.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(unit.words[0]), "r"(unit.words[1]),
               "r"(unit.words[2]), "r"(unit.words[3])
               : "memory");
}

// Prepares a unit for sending. Words with the value kAbsent become 0, because to the receiver kAbsent means that the
// word has not arrived yet.
template <int kWords>
__device__ inline Unit<kWords> present(Unit<kWords> unit) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) unit.words[i] = unit.words[i] == kAbsent ? 0 : unit.words[i];
  return unit;
}
template <int kWords>
__device__ inline bool is_absent(const Unit<kWords>& unit) {
  bool absent = false;
#pragma unroll
  for (int i = 0; i < kWords; ++i) absent |= unit.words[i] == kAbsent;
  return absent;
}

// One turn: its number modulo kBuffers, the buffer that it uses, and the words that it clears. Every thread calls
// begin_turn() once, after wait_for_previous().
struct Turn {
  std::uint32_t number;
  std::int64_t buffer_at;  // words from a mailbox's start to the turn's buffer
  std::int64_t clear_at;
  std::uint32_t clear_words;
};

__device__ inline Turn begin_turn(const Peers& peers) {
  const volatile Turns* turns = peers.turns;
  const std::uint32_t number = turns->turn;
  const std::uint32_t last = (number + kBuffers - 1) % kBuffers;
  return {.number = number,
          .buffer_at = number % kBuffers * peers.buffer_words,
          .clear_at = last * peers.buffer_words,
          .clear_words = turns->used[last]};
}

__device__ inline std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * kPeerThreads + threadIdx.x;
}
__device__ inline std::int64_t threads_of_grid() { return static_cast<std::int64_t>(gridDim.x) * kPeerThreads; }

// Clears the words that were written to this rank's mailbox in the previous turn: sets them to kAbsent. Each thread
// clears a part of these words.
__device__ inline void clear_last_turn(const Peers& peers, const Turn& turn) {
  uint4* buffer = reinterpret_cast<uint4*>(peers.mailboxes[peers.rank] + turn.clear_at);
  const std::int64_t packs = (static_cast<std::int64_t>(turn.clear_words) + 3) / 4;
  for (std::int64_t i = thread_of_grid(); i < packs; i += threads_of_grid())
    buffer[i] = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
}

// Ends the turn. The last block to end increments the turn's number. `used` is the number of words that the other ranks
// wrote to this rank's buffer, counted from its start.
__device__ inline void end_turn(const Peers& peers, const Turn& turn, std::int64_t used) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  Turns* turns = peers.turns;
  if (atomicAdd(&turns->blocks_done, 1u) + 1 < gridDim.x) return;
  turns->blocks_done = 0;
  turns->used[turn.number % kBuffers] = static_cast<std::uint32_t>(used);
  // The number is kept modulo kBuffers. A number that wraps around at 2^32 would skip a buffer, because 2^32 is not a
  // multiple of kBuffers.
  turns->turn = (turn.number + 1) % kBuffers;
}

// Returns the address of rank `from`'s slot in the mailbox of rank `to`. A mailbox has one slot of `units` units for
// each other rank.
template <int kWords>
__device__ inline Unit<kWords>* slot_of(const Peers& peers, const Turn& turn, int to, int from, std::int64_t units) {
  Unit<kWords>* buffer = reinterpret_cast<Unit<kWords>*>(peers.mailboxes[to] + turn.buffer_at);
  return buffer + (from < to ? from : from - 1) * units;
}

// Waits for unit `at` of every other rank's slot in this rank's mailbox. Sets of_rank[r] to the unit of rank r, and
// takes `mine` for this rank. If the group ends, the function returns early, and some units may then be missing.
template <int kWords>
__device__ inline void receive(const Peers& peers, const Turn& turn, std::int64_t units, std::int64_t at,
                               const Unit<kWords>& mine, Unit<kWords> (&of_rank)[kMostPeers]) {
#pragma unroll
  for (int r = 0; r < kMostPeers; ++r) of_rank[r] = mine;
  int looks = 0;
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r)
      if (r < peers.ranks && r != peers.rank)
        of_rank[r] = load_mail(slot_of<kWords>(peers, turn, peers.rank, r, units) + at);
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r)
      if (r < peers.ranks && r != peers.rank) missing |= is_absent(of_rank[r]);
    if (++looks % kLooksBetweenStops == 0 && *static_cast<const volatile std::uint32_t*>(peers.stop) != 0) return;
  } while (missing);
}
template <int kWords>
__device__ inline Unit<kWords> receive(const Peers& peers, const Unit<kWords>* from) {
  Unit<kWords> unit;
  int looks = 0;
  do {
    unit = load_mail(from);
    if (++looks % kLooksBetweenStops == 0 && *static_cast<const volatile std::uint32_t*>(peers.stop) != 0) break;
  } while (is_absent(unit));
  return unit;
}

// Sends a thread's unit to all other ranks, beginning with the next rank. In the mailbox of each receiver the unit
// becomes unit `at` of this rank's slot.
template <int kWords>
__device__ inline void send_to_others(const Peers& peers, const Turn& turn, std::int64_t units, std::int64_t at,
                                      const Unit<kWords>& unit) {
  for (int k = 1; k < peers.ranks; ++k) {
    const int to = (peers.rank + k) % peers.ranks;
    store_mail(slot_of<kWords>(peers, turn, to, peers.rank, units) + at, unit);
  }
}

// Adds up the ranks' units in rank order.
template <class T, int kWords>
__device__ inline Unit<kWords> sum_of_ranks(const Unit<kWords> (&of_rank)[kMostPeers], int ranks) {
  constexpr int kValues = kWords * 4 / static_cast<int>(sizeof(T));
  float sum[kValues] = {};
#pragma unroll
  for (int r = 0; r < kMostPeers; ++r) {
    if (r >= ranks) continue;
    const auto& values = reinterpret_cast<const Pack<T, kValues>&>(of_rank[r]);
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum[i] += to_float(values.at[i]);
  }
  Unit<kWords> unit;
  auto& values = reinterpret_cast<Pack<T, kValues>&>(unit);
#pragma unroll
  for (int i = 0; i < kValues; ++i) values.at[i] = from_float<T>(sum[i]);
  return unit;
}

// Loads a kernel's code before its first launch. Otherwise that launch would load the code. CUDA may wait until the
// device is idle before it loads code. If a kernel on the device were then waiting for this rank, neither wait would
// end.
template <class Kernel>
inline Status load_code(Kernel* kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) return ok_status();
  (void)cudaGetLastError();
  return internal_error(std::string("loading a collective's kernel: ") + cudaGetErrorString(error));
}

// Adds up x over the ranks by ReduceWay::kAtOnce.
template <class T, int kWords>
__global__ void __launch_bounds__(kPeerThreads, 1)
    reduce_at_once(const __grid_constant__ Peers peers, Unit<kWords>* x, std::int64_t units) {
  let_next_begin();
  wait_for_previous();
  const Turn turn = begin_turn(peers);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid())
    send_to_others(peers, turn, units, i, present(x[i]));
  clear_last_turn(peers, turn);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid()) {
    Unit<kWords> of_rank[kMostPeers];
    receive(peers, turn, units, i, present(x[i]), of_rank);
    x[i] = sum_of_ranks<T, kWords>(of_rank, peers.ranks);
  }
  end_turn(peers, turn, (peers.ranks - 1) * units * kWords);
}

// Adds up x over the ranks by ReduceWay::kTwoSteps. Each rank adds up one part of x and sends the sums. A rank's buffer
// holds first the other ranks' values of the rank's own part, and then the sums of all parts.
template <class T, int kWords>
__global__ void __launch_bounds__(kPeerThreads, 1)
    reduce_in_two_steps(const __grid_constant__ Peers peers, Unit<kWords>* x, std::int64_t units) {
  let_next_begin();
  wait_for_previous();
  const Turn turn = begin_turn(peers);
  const std::int64_t part = ceil_div(units, peers.ranks);
  const auto sums_of = [&](int rank) { return slot_of<kWords>(peers, turn, rank, 0, 0) + (peers.ranks - 1) * part; };
  for (std::int64_t i = thread_of_grid(); i < part; i += threads_of_grid()) {
    for (int k = 1; k < peers.ranks; ++k) {
      const int to = (peers.rank + k) % peers.ranks;
      const std::int64_t at = to * part + i;
      if (at < units) store_mail(slot_of<kWords>(peers, turn, to, peers.rank, part) + i, present(x[at]));
    }
  }
  clear_last_turn(peers, turn);
  for (std::int64_t i = thread_of_grid(); i < part; i += threads_of_grid()) {
    const std::int64_t at = peers.rank * part + i;
    if (at >= units) break;
    Unit<kWords> of_rank[kMostPeers];
    receive(peers, turn, part, i, present(x[at]), of_rank);
    const Unit<kWords> sum = present(sum_of_ranks<T, kWords>(of_rank, peers.ranks));
    for (int k = 1; k < peers.ranks; ++k) store_mail(sums_of((peers.rank + k) % peers.ranks) + at, sum);
    x[at] = sum;
  }
  for (std::int64_t i = thread_of_grid(); i < part; i += threads_of_grid()) {
    for (int k = 1; k < peers.ranks; ++k) {
      const std::int64_t at = (peers.rank + k) % peers.ranks * part + i;
      if (at < units) x[at] = receive<kWords>(peers, sums_of(peers.rank) + at);
    }
  }
  end_turn(peers, turn, ((peers.ranks - 1) * part + units) * kWords);
}

// Gathers x [rows, columns] of every rank to y [rows, ranks · columns]. `columns` counts units, not values.
template <int kWords>
__global__ void __launch_bounds__(kPeerThreads, 1)
    gather_columns(const __grid_constant__ Peers peers, const Unit<kWords>* x, Unit<kWords>* y, std::int64_t rows,
                   std::int64_t columns) {
  let_next_begin();
  wait_for_previous();
  const Turn turn = begin_turn(peers);
  const std::int64_t units = rows * columns;
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid())
    send_to_others(peers, turn, units, i, present(x[i]));
  clear_last_turn(peers, turn);
  for (std::int64_t i = thread_of_grid(); i < units; i += threads_of_grid()) {
    Unit<kWords> of_rank[kMostPeers];
    receive(peers, turn, units, i, present(x[i]), of_rank);
    Unit<kWords>* row = y + i / columns * columns * peers.ranks + i % columns;
#pragma unroll
    for (int r = 0; r < kMostPeers; ++r)
      if (r < peers.ranks) row[r * columns] = of_rank[r];
  }
  end_turn(peers, turn, (peers.ranks - 1) * units * kWords);
}

}  // namespace tessera::cuda
