// A cache of int8: the layout of its pages, and how numbers become codes.
//
// The elements of a head are divided into blocks of 32. The last block may be shorter. A block is stored as int8 codes
// and one scale in bfloat16. The format Q8_0 of GGUF files is similar, but its scales are float16. An element is read
// as code · scale. The scale is the block's greatest magnitude / 127, rounded up, so that all codes are from -127 to
// 127. A code is element / scale, rounded to nearest. So an element changes by at most half a scale, which is at most
// 1/252 of the block's greatest magnitude. A block with an infinity or a NaN gets the scale NaN, and all its elements
// read as NaN. A block whose magnitudes are all below 1.5e-36 becomes zeros.
//
// Graphs declare such a cache, with P pages and Hkv KV heads, as u8[P, page_size, Hkv, row_bytes]. This shape gives
// only the number of bytes: within a page the bytes are not in the order of these dimensions. A page has a chunk for
// each KV head: first the codes i8[page_size, head_dim], then the scales bf16[page_size, blocks]. So the keys of one
// head, which attention reads one after the other, are contiguous within a page, and a copy of a page includes the
// scales.
#pragma once

#include <cstdint>

#include "tessera/base/float16.h"

namespace tessera {

inline constexpr std::int64_t kInt8Block = 32;      // elements with one scale
inline constexpr std::int64_t kInt8ScaleBytes = 2;  // a scale is a bfloat16

constexpr std::int64_t int8_blocks(std::int64_t head_dim) { return (head_dim + kInt8Block - 1) / kInt8Block; }
// Returns the number of bytes that one token's key or value takes for one head, with its scales.
constexpr std::int64_t int8_row_bytes(std::int64_t head_dim) {
  return head_dim + int8_blocks(head_dim) * kInt8ScaleBytes;
}

// The storage type of a cache of int8, for code that is written for all types of caches. An Int8Cache is one byte of
// the cache.
struct Int8Cache {
  std::uint8_t byte;
};

// The places of codes and scales in a cache, as offsets in bytes from its beginning.
struct Int8Layout {
  std::int64_t page_size;  // in tokens
  std::int64_t kv_heads;
  std::int64_t head_dim;

  constexpr std::int64_t blocks() const { return int8_blocks(head_dim); }
  constexpr std::int64_t chunk(std::int64_t page, std::int64_t head) const {
    return (page * kv_heads + head) * page_size * int8_row_bytes(head_dim);
  }
  // Returns the offset at which the codes of a token begin. `token` is the token's index in the page.
  constexpr std::int64_t codes(std::int64_t page, std::int64_t head, std::int64_t token) const {
    return chunk(page, head) + token * head_dim;
  }
  // Returns the offset of the scales of this token. The offset may be odd.
  constexpr std::int64_t scales(std::int64_t page, std::int64_t head, std::int64_t token) const {
    return chunk(page, head) + page_size * head_dim + token * blocks() * kInt8ScaleBytes;
  }
};

// Stores the heads [head, head + heads) of the token in slot `slot`. `from` has the elements of these heads, one head
// after the other. X is float, BFloat16 or Float16.
template <class X>
void store_int8(const X* from, Int8Cache* cache, const Int8Layout& layout, std::int64_t slot, std::int64_t head,
                std::int64_t heads);

}  // namespace tessera
