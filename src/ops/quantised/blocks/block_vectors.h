// Vectors and single instructions for the kernels of packed blocks, one struct for each instruction set. A kernel is
// written once, as a template that takes one of these structs. A native vector has kLanes numbers of 32 bits, one for
// each of kLanes rows. Sixteen rows take kNative vectors.
//
// The instructions are inline assembly, because the intrinsics cannot be used in functions that are compiled for
// several instruction sets. Everything is inlined into a function that is compiled for the instruction set
// (block_kernels_*.cpp).
#pragma once

#include <cstdint>
#include <cstring>

#include "tessera/base/float16.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // all functions below are inlined, so how they pass vectors does not matter

namespace tessera::blocks {

template <int kVectorBytes>
struct Vectors {
  static constexpr int kBytes = kVectorBytes;
  static constexpr int kLanes = kBytes / 4;
  static constexpr int kNative = static_cast<int>(kPackedRows) / kLanes;

  using F [[gnu::vector_size(kVectorBytes)]] = float;
  using U [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
  using I [[gnu::vector_size(kVectorBytes)]] = std::int32_t;

  template <class V>
  static TESSERA_INLINE V load(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  template <class V>
  static TESSERA_INLINE void store(void* p, V const& v) {
    std::memcpy(p, &v, sizeof(v));
  }
  // Keeps a loaded vector in its register. Otherwise g++ loads it again for each use.
  static TESSERA_INLINE void keep([[maybe_unused]] U& v) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    asm("" : "+v"(v));
#endif
  }
  static TESSERA_INLINE I splat(std::int32_t x) { return I{} + x; }
  static TESSERA_INLINE U splat(std::uint32_t x) { return U{} + x; }
};

// The instructions for any processor. Bytes are multiplied to products of 16 bits, which are added in 32 bits.
struct PlainVectors : Vectors<16> {
  static constexpr bool kMultipliesSigned = true;
  static TESSERA_INLINE F each(const float* p) { return F{*p, *p, *p, *p}; }
  static TESSERA_INLINE I each(const std::int32_t* p) { return I{*p, *p, *p, *p}; }
  using H [[gnu::vector_size(16)]] = std::int16_t;

  static TESSERA_INLINE F floats(I const& v) { return __builtin_convertvector(v, F); }
  template <int kSteps, int kBits, bool kSigned>
  static TESSERA_INLINE I dot(I const& first, const U* w, const std::int8_t* x) {
    I sum = first;
    const auto* four = reinterpret_cast<const std::int32_t*>(x);
    for (int s = 0; s < kSteps; ++s) {
      const auto wide = reinterpret_cast<H>(w[s]);
      const auto values = reinterpret_cast<H>(each(four + s));
      const H even = kSigned ? (wide << 8) >> 8 : wide & 0xff;
      const H odd = kSigned ? wide >> 8 : reinterpret_cast<H>(reinterpret_cast<VecU16x8>(wide) >> 8);
      // A product of bytes fits 16 bits.
      const auto low = reinterpret_cast<I>(even * ((values << 8) >> 8));
      const auto high = reinterpret_cast<I>(odd * (values >> 8));
      sum += ((low << 16) >> 16) + (low >> 16) + ((high << 16) >> 16) + (high >> 16);
    }
    return sum;
  }
  static TESSERA_INLINE F halves(const std::uint8_t* p) {
    F v;
    for (int i = 0; i < kLanes; ++i) {
      Float16 half;
      std::memcpy(&half, p + 2 * i, sizeof(half));
      v[i] = to_float(half);
    }
    return v;
  }
  static TESSERA_INLINE U words(const std::uint8_t* p) {
    U v;
    for (int i = 0; i < kLanes; ++i) v[i] = static_cast<std::uint32_t>(p[2 * i] | p[2 * i + 1] << 8);
    return v;
  }
  static TESSERA_INLINE U bytes(const std::uint8_t* p) {
    U v;
    for (int i = 0; i < kLanes; ++i) v[i] = p[i];
    return v;
  }
  // Returns byte `at` of each lane.
  static TESSERA_INLINE I byte_of(U const& v, int at) { return reinterpret_cast<I>(v >> (8 * at) & 255u); }
  static TESSERA_INLINE I signed_bytes(const std::uint8_t* p) {
    I v;
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): the sign is wanted
    for (int i = 0; i < kLanes; ++i) v[i] = static_cast<std::int8_t>(p[i]);
    return v;
  }
  // Replaces each byte, 0 to 15, by an entry of the table.
  static TESSERA_INLINE U look_up(const std::int8_t* table, U const& codes) {
    std::int8_t found[kBytes];
    std::uint8_t indices[kBytes];
    store(indices, codes);
    for (int i = 0; i < kBytes; ++i) found[i] = table[indices[i]];
    return load<U>(found);
  }

 private:
  using VecU16x8 [[gnu::vector_size(16)]] = std::uint16_t;
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

// Masks for vpshufb. Row `at` moves byte `at` of each lane to the lane's lowest byte, and clears the lane's other
// bytes.
struct ByteOf {
  alignas(64) std::uint8_t rows[4][64];
};
constexpr ByteOf make_byte_of() {
  ByteOf made{};
  for (int at = 0; at < 4; ++at)
    for (int i = 0; i < 64; ++i) made.rows[at][i] = static_cast<std::uint8_t>(i % 4 == 0 ? i % 16 + at : 0x80);
  return made;
}
inline constexpr ByteOf kByteOf = make_byte_of();

// AVX2: vpmaddubsw adds pairs of products in 16 bits, and saturates. kBits is the size of w's codes.
struct Avx2Vectors : Vectors<32> {
  static constexpr bool kMultipliesSigned = true;
  using H [[gnu::vector_size(32)]] = std::int16_t;

  static TESSERA_INLINE F each(const float* p) {
    F v;
    asm("vbroadcastss %1, %0" : "=x"(v) : "m"(*p));
    return v;
  }
  static TESSERA_INLINE I each(const std::int32_t* p) {
    I v;
    asm("vpbroadcastd %1, %0" : "=x"(v) : "m"(*p));
    return v;
  }

  // Returns how many sums of pairs can be added without overflow of 16 bits, for codes of `bits` bits.
  static constexpr int fitting(int bits) { return bits <= 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1; }

  static TESSERA_INLINE F floats(I const& v) { return __builtin_convertvector(v, F); }
  template <int kSteps, int kBits, bool kSigned>
  static TESSERA_INLINE I dot(I const& first, const U* w, const std::int8_t* x) {
    I sum = first;
    constexpr int kTogether = fitting(kBits) < kSteps ? fitting(kBits) : kSteps;
    const auto* four = reinterpret_cast<const std::int32_t*>(x);
    const H ones = H{} + std::int16_t{1};
#pragma GCC unroll 8
    for (int s = 0; s < kSteps; s += kTogether) {
      H pairs = products<kSigned>(w[s], each(four + s));
#pragma GCC unroll 8
      for (int i = 1; i < kTogether; ++i) pairs += products<kSigned>(w[s + i], each(four + s + i));
      I wide;
      asm("vpmaddwd %1, %2, %0" : "=x"(wide) : "x"(pairs), "x"(ones));
      sum += wide;
    }
    return sum;
  }
  static TESSERA_INLINE F halves(const std::uint8_t* p) {
    F v;
    asm("vcvtph2ps %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p)));
    return v;
  }
  static TESSERA_INLINE U words(const std::uint8_t* p) {
    U v;
    asm("vpmovzxwd %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p)));
    return v;
  }
  static TESSERA_INLINE U bytes(const std::uint8_t* p) {
    U v;
    asm("vpmovzxbd %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[8]>(p)));
    return v;
  }
  static TESSERA_INLINE I byte_of(U const& v, int at) {
    I bytes;
    asm("vpshufb %1, %2, %0"
        : "=x"(bytes)
        : "m"(*reinterpret_cast<const std::uint8_t(*)[32]>(kByteOf.rows[at])), "x"(v));
    return bytes;
  }
  static TESSERA_INLINE I signed_bytes(const std::uint8_t* p) {
    I v;
    asm("vpmovsxbd %1, %0" : "=x"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[8]>(p)));
    return v;
  }
  static TESSERA_INLINE U look_up(const std::int8_t* table, U const& codes) {
    U both;
    asm("vbroadcasti128 %1, %0" : "=x"(both) : "m"(*reinterpret_cast<const std::int8_t(*)[16]>(table)));
    U found;
    asm("vpshufb %1, %2, %0" : "=x"(found) : "x"(codes), "x"(both));
    return found;
  }

 private:
  // Multiplies w by x. If w is signed, multiplies |w| by sign(w) · x, because the instruction takes one unsigned
  // operand.
  template <bool kSigned>
  static TESSERA_INLINE H products(U const& w, I const& x) {
    H pairs;
    if constexpr (kSigned) {
      U magnitude;
      asm("vpabsb %1, %0" : "=x"(magnitude) : "x"(w));
      I values;
      asm("vpsignb %1, %2, %0" : "=x"(values) : "x"(w), "x"(x));
      asm("vpmaddubsw %1, %2, %0" : "=x"(pairs) : "x"(values), "x"(magnitude));
    } else {
      asm("vpmaddubsw %1, %2, %0" : "=x"(pairs) : "x"(x), "x"(w));
    }
    return pairs;
  }
};

// AVX-512 with VNNI: vpdpbusd adds four products of bytes to a lane. The instruction takes unsigned codes, so signed
// codes get 128 added (kShifted).
struct VnniVectors : Vectors<64> {
  static constexpr bool kMultipliesSigned = false;
  static TESSERA_INLINE F each(const float* p) {
    F v;
    asm("vbroadcastss %1, %0" : "=v"(v) : "m"(*p));
    return v;
  }
  static TESSERA_INLINE I each(const std::int32_t* p) {
    I v;
    asm("vpbroadcastd %1, %0" : "=v"(v) : "m"(*p));
    return v;
  }

  static TESSERA_INLINE F floats(I const& v) { return __builtin_convertvector(v, F); }
  template <int kSteps, int kBits, bool kSigned>
  static TESSERA_INLINE I dot(I const& first, const U* w, const std::int8_t* x) {
    I sum = first;
    // Two sums alternate, because an addition waits for the previous addition to the same sum.
    I other = {};
#pragma GCC unroll 4
    for (int s = 0; s < kSteps / 2; ++s) {
      add_products(sum, w[s], x + 4 * s);
      add_products(other, w[kSteps / 2 + s], x + 2 * kSteps + 4 * s);
    }
    return sum + other;
  }
  static TESSERA_INLINE F halves(const std::uint8_t* p) {
    F v;
    asm("vcvtph2ps %1, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[32]>(p)));
    return v;
  }
  static TESSERA_INLINE U words(const std::uint8_t* p) {
    U v;
    asm("vpmovzxwd %1, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[32]>(p)));
    return v;
  }
  static TESSERA_INLINE U bytes(const std::uint8_t* p) {
    U v;
    asm("vpmovzxbd %1, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p)));
    return v;
  }
  static TESSERA_INLINE I byte_of(U const& v, int at) {
    I bytes;
    asm("vpshufb %1, %2, %0"
        : "=v"(bytes)
        : "m"(*reinterpret_cast<const std::uint8_t(*)[64]>(kByteOf.rows[at])), "v"(v));
    return bytes;
  }
  static TESSERA_INLINE I signed_bytes(const std::uint8_t* p) {
    I v;
    asm("vpmovsxbd %1, %0" : "=v"(v) : "m"(*reinterpret_cast<const std::uint8_t(*)[16]>(p)));
    return v;
  }
  static TESSERA_INLINE U look_up(const std::int8_t* table, U const& codes) {
    U all;
    asm("vbroadcasti32x4 %1, %0" : "=v"(all) : "m"(*reinterpret_cast<const std::int8_t(*)[16]>(table)));
    U found;
    asm("vpshufb %1, %2, %0" : "=v"(found) : "v"(codes), "v"(all));
    return found;
  }

 private:
  static TESSERA_INLINE void add_products(I& sum, U const& w, const std::int8_t* x) {
    I held = sum;
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(held) : "v"(w), "m"(*reinterpret_cast<const std::int8_t(*)[4]>(x)));
    sum = held;
  }
};

#endif

}  // namespace tessera::blocks
