// The kernels of packed blocks for one instruction set. A source file first defines TESSERA_BLOCK_TARGET, the attribute
// with which functions are compiled. It then includes this file once, and makes its BlockKernels by
// make_block_kernels<V>().
#pragma once

#include "tessera/ops/quantised/blocks/block_kernels.h"
#include "tessera/ops/quantised/blocks/block_readers.h"

namespace tessera::blocks {
namespace {

// Reads unpacked codes from a panel, with the interface of the readers in block_readers.h.
template <class V, class Form>
struct PanelReader : Form {
  using F = typename V::F;
  const Panel* panel;
  int native;

  TESSERA_INLINE void codes(int part, typename V::U (&to)[8]) const {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) to[s] = V::template load<typename V::U>(panel->codes[part][s][native * V::kLanes]);
  }
  TESSERA_INLINE F scale(int part, int half) const {
    return V::template load<F>(panel->scales[part][half] + native * V::kLanes);
  }
  TESSERA_INLINE F minimum(int part) const { return V::template load<F>(panel->minima[part] + native * V::kLanes); }
};

// vpdpbusd takes only unsigned codes. So 128 is added to signed codes, and the initial value of each sum makes up for
// these 128.
template <class V, class Form>
constexpr bool kShifted = Form::kSigned && !V::kMultipliesSigned;
template <class V, class Form>
constexpr int kOffset = kShifted<V, Form> ? 128 : Form::kOffset;

template <class V, class Form>
TESSERA_INLINE void shift_codes(typename V::U (&codes)[8]) {
  if constexpr (kShifted<V, Form>)
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) codes[s] ^= V::splat(0x80808080u);
}

// Adds the products of one part of w with kRows rows of x. `x` is the first row's input. The inputs of successive rows
// are kChunkParts inputs apart.
template <class V, class Reader, int kRows>
TESSERA_INLINE void add_part(const Reader& reader, typename V::U (&codes)[8], int part, const Input* x,
                             typename V::F (&sums)[kRows]) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr bool kSigned = Reader::kSigned && V::kMultipliesSigned;
  const F first = reader.scale(part, 0);
  if constexpr (Reader::kHalves) {
    const F second = reader.scale(part, 1);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Input& in = x[r * kChunkParts];
      const I low = V::template dot<4, Reader::kBits, kSigned>(V::each(&in.minus_halves[0]) * kOffset<V, Reader>, codes,
                                                               in.values);
      const I high = V::template dot<4, Reader::kBits, kSigned>(V::each(&in.minus_halves[1]) * kOffset<V, Reader>,
                                                                codes + 4, in.values + 16);
      sums[r] += V::floats(low) * (first * V::each(&in.scale));
      sums[r] += V::floats(high) * (second * V::each(&in.scale));
    }
    return;
  }
  F minimum = {};
  if constexpr (Reader::kMinimum) minimum = reader.minimum(part);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Input& in = x[r * kChunkParts];
    I products = {};
    if constexpr (kOffset<V, Reader> != 0) products = V::each(&in.minus_sum) * kOffset<V, Reader>;
    products = V::template dot<8, Reader::kBits, kSigned>(products, codes, in.values);
    sums[r] += V::floats(products) * (first * V::each(&in.scale));
    if constexpr (Reader::kMinimum) sums[r] -= minimum * V::each(&in.sum);
  }
}

// Prefetches of w run this many bytes ahead.
constexpr std::int64_t kAhead = 4096;

template <class V, class Reader, int kRows>
TESSERA_BLOCK_TARGET void multiply_few(const std::uint8_t* w, const Inputs& x, std::int64_t row, float* sums,
                                       std::int64_t stride) {
  using F = typename V::F;
  F total[V::kNative][kRows] = {};
  const Input* of_chunk = x.at + row * kChunkParts;
  std::int64_t left = x.parts;
  for (const std::uint8_t* record = w; left > 0;
       left -= kChunkParts, record += Reader::kRecordBytes, of_chunk += x.rows * kChunkParts) {
    const int parts = static_cast<int>(left < kChunkParts ? left : kChunkParts);
#pragma GCC unroll 1
    for (int n = 0; n < V::kNative; ++n) {
      Reader reader;
      reader.begin(record, parts, n);
      F sums_now[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums_now[r] = total[n][r];
#pragma GCC unroll 1
      for (int part = 0; part < parts; ++part) {
        if (n == 0) {
          constexpr std::int64_t kLines = (Reader::kRecordBytes / kChunkParts + 63) / 64;
#pragma GCC unroll 16
          for (std::int64_t line = 0; line < kLines; ++line)
            __builtin_prefetch(record + kAhead + (part * kLines + line) * 64);
        }
        typename V::U codes[8];
        reader.codes(part, codes);
        shift_codes<V, Reader>(codes);
        add_part<V, Reader, kRows>(reader, codes, part, of_chunk + part, sums_now);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) total[n][r] = sums_now[r];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int n = 0; n < V::kNative; ++n) V::store(sums + r * stride + n * V::kLanes, total[n][r]);
}

template <class V, class Reader>
TESSERA_BLOCK_TARGET void unpack_record(const std::uint8_t* record, int parts, Panel& to) {
#pragma GCC unroll 1
  for (int n = 0; n < V::kNative; ++n) {
    Reader reader;
    reader.begin(record, parts, n);
#pragma GCC unroll 1
    for (int part = 0; part < parts; ++part) {
      typename V::U codes[8];
      reader.codes(part, codes);
      shift_codes<V, Reader>(codes);
      for (int s = 0; s < 8; ++s) V::store(to.codes[part][s][n * V::kLanes], codes[s]);
      V::store(to.scales[part][0] + n * V::kLanes, reader.scale(part, 0));
      if constexpr (Reader::kHalves) V::store(to.scales[part][1] + n * V::kLanes, reader.scale(part, 1));
      if constexpr (Reader::kMinimum) V::store(to.minima[part] + n * V::kLanes, reader.minimum(part));
    }
  }
}

template <class V, class Form, int kRows>
TESSERA_BLOCK_TARGET void multiply_panel(const Panel& w, int parts, const Input* x, float* sums, std::int64_t stride) {
  using F = typename V::F;
#pragma GCC unroll 1
  for (int n = 0; n < V::kNative; ++n) {
    PanelReader<V, Form> reader;
    reader.panel = &w;
    reader.native = n;
    F total[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) total[r] = V::template load<F>(sums + r * stride + n * V::kLanes);
#pragma GCC unroll 1
    for (int part = 0; part < parts; ++part) {
      typename V::U codes[8];
      reader.codes(part, codes);
      add_part<V, PanelReader<V, Form>, kRows>(reader, codes, part, x + part, total);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) V::store(sums + r * stride + n * V::kLanes, total[r]);
  }
}

// Each struct below holds the arguments of one function of BlockKernels. run<Reader>() runs that function for the
// Reader's block type; run_for() chooses the Reader.
template <class V>
struct Few {
  const std::uint8_t* w;
  const Inputs& x;
  std::int64_t first;
  std::int64_t count;
  float* sums;
  std::int64_t stride;

  template <class Reader>
  void run() const {
    switch (count) {
      case 1: return multiply_few<V, Reader, 1>(w, x, first, sums, stride);
      case 2: return multiply_few<V, Reader, 2>(w, x, first, sums, stride);
      case 3: return multiply_few<V, Reader, 3>(w, x, first, sums, stride);
      default: return multiply_few<V, Reader, 4>(w, x, first, sums, stride);
    }
  }
};

template <class V>
struct Unpack {
  const std::uint8_t* record;
  int parts;
  Panel& to;

  template <class Reader>
  void run() const {
    unpack_record<V, Reader>(record, parts, to);
  }
};

template <class V>
struct FormOf {
  PanelForm& form;

  template <class Reader>
  void run() const {
    form = {.offset = kOffset<V, Reader>,
            .is_signed = Reader::kSigned && !kShifted<V, Reader>,
            .halves = Reader::kHalves,
            .minimum = Reader::kMinimum};
  }
};

template <class V>
struct AddPanel {
  const Panel& w;
  int parts;
  const Input* x;
  std::int64_t count;
  float* sums;
  std::int64_t stride;

  template <class Reader>
  void run() const {
    using Form = CodeForm<Reader::kBits, Reader::kOffset, Reader::kSigned, Reader::kHalves, Reader::kMinimum>;
    std::int64_t r = 0;
    for (; r + 8 <= count; r += 8) multiply_panel<V, Form, 8>(w, parts, x + r * kChunkParts, sums + r * stride, stride);
    if (r + 4 <= count) {
      multiply_panel<V, Form, 4>(w, parts, x + r * kChunkParts, sums + r * stride, stride);
      r += 4;
    }
    for (; r < count; ++r) multiply_panel<V, Form, 1>(w, parts, x + r * kChunkParts, sums + r * stride, stride);
  }
};

template <class V, class Operation>
void run_for(BlockType type, const Operation& operation) {
  switch (type) {
    case BlockType::kQ4_0: return operation.template run<ShortReader<V, More::kNothing, 8, false>>();
    case BlockType::kQ4_1: return operation.template run<ShortReader<V, More::kNothing, 0, true>>();
    case BlockType::kQ5_0: return operation.template run<ShortReader<V, More::kOneBit, 16, false>>();
    case BlockType::kQ5_1: return operation.template run<ShortReader<V, More::kOneBit, 0, true>>();
    case BlockType::kQ8_0: return operation.template run<Q8Reader<V>>();
    case BlockType::kIQ4_NL: return operation.template run<TableReader<V, false>>();
    case BlockType::kMXFP4: return operation.template run<TableReader<V, true>>();
    case BlockType::kQ4_K: return operation.template run<LongReader<V, More::kNothing>>();
    case BlockType::kQ5_K: return operation.template run<LongReader<V, More::kOneBit>>();
    case BlockType::kQ6_K: return operation.template run<Q6Reader<V>>();
    case BlockType::kIQ4_XS: return operation.template run<Iq4XsReader<V>>();
    default: return;
  }
}

// NOLINTBEGIN(readability-non-const-parameter): sums are written
template <class V>
void few(BlockType type, const std::uint8_t* w, const Inputs& x, std::int64_t first, std::int64_t count, float* sums,
         std::int64_t stride) {
  run_for<V>(type, Few<V>{w, x, first, count, sums, stride});
}

template <class V>
void unpack(BlockType type, const std::uint8_t* record, std::int64_t parts, Panel& to) {
  run_for<V>(type, Unpack<V>{record, static_cast<int>(parts), to});
}

template <class V>
PanelForm form(BlockType type) {
  PanelForm found{};
  run_for<V>(type, FormOf<V>{found});
  return found;
}

template <class V>
void add_panel(BlockType type, const Panel& w, const Inputs& x, std::int64_t chunk, std::int64_t first,
               std::int64_t count, float* sums, std::int64_t stride) {
  const std::int64_t left = x.parts - chunk * kChunkParts;
  run_for<V>(type, AddPanel<V>{w, static_cast<int>(left < kChunkParts ? left : kChunkParts),
                               x.at + (chunk * x.rows + first) * kChunkParts, count, sums, stride});
}

// NOLINTEND(readability-non-const-parameter)

template <class V>
constexpr BlockKernels make_block_kernels(const char* name) {
  return {.name = name, .few = few<V>, .unpack = unpack<V>, .form = form<V>, .add_panel = add_panel<V>};
}

}  // namespace
}  // namespace tessera::blocks
