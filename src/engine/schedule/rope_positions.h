// Three-dimensional positions (time, height, width) of the tokens of a text with images. They follow get_rope_index of
// Hugging Face's modeling_qwen2_5_vl.py, which Qwen2-VL, Qwen3-VL and Qwen3.5 share for images.
//
//   tokens of text     each is one greater than the token before it, on all three axes
//   an image           begins at p, where text would continue: its token (row r, column c) is at (p, p + r, p + c)
//   the text after it  continues at p + max(rows, columns), one more than the greatest position so far
//
// A token's positions may therefore be below its index in the text. Decoded tokens continue after the prompt in the
// same way.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// The tokens of an image, row by row.
struct TokenGrid {
  std::int64_t first_token = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

class RopePositions {
 public:
  // `images` must be in the order of their tokens and must not overlap.
  explicit RopePositions(std::span<const TokenGrid> images);

  // Appends the positions of the tokens first … first + count - 1.
  void append(std::int64_t first, std::int64_t count, std::array<std::vector<std::int32_t>, 3>& to) const;

 private:
  // A run of neighbouring tokens, up to the next segment.
  struct Segment {
    std::int64_t first_token;
    std::int64_t position;  // position of the segment's first token
    std::int64_t columns;   // columns of the image; 0: the segment is text
  };
  std::vector<Segment> segments_;  // sorted by first_token
};

}  // namespace tessera
