// Rows of the embeddings' memory by the image they hold (runner/embedding_rows.h): the encoder cache. Sequences that
// have an image in common share its rows. Rows that no sequence holds stay, and are given up least recently used first
// where others need the room.
//
//   ImageRows::Image* image = images.take(content, tokens);  // null: no room, as long as others hold what they hold
//   … where it is not written, the tower writes the rows: images.set_written(content, true) …
//   images.release(*image);
//
// A pure bookkeeper on one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tessera/base/hash.h"
#include "tessera/engine/schedule/row_ranges.h"

namespace tessera {

class ImageRows {
 public:
  struct Image {
    Hash128 content{};  // Patches::content
    std::int64_t first_row = 0;
    std::int64_t count = 0;   // rows
    std::int64_t users = 0;   // sequences that hold it
    bool is_written = false;  // or will be, by work that was enqueued
    std::uint64_t last_used = 0;
  };

  // Takes ranges of `rows`, which outlives this and which others take from too.
  explicit ImageRows(RowRanges& rows) : rows_(rows) {}
  ImageRows(const ImageRows&) = delete;
  ImageRows& operator=(const ImageRows&) = delete;

  // The image's `count` rows, held until release(). Null where there is no room for them even without all rows that
  // nobody holds.
  Image* take(const Hash128& content, std::int64_t count);
  // Rows that were never written are given up at once.
  void release(Image& image);
  // What `image` says of its rows' content. Without effect where the rows were given up.
  void set_written(const Hash128& content, bool is_written);
  // Gives up rows that nobody holds until `count` neighbouring ones are free; whether they are.
  bool make_room(std::int64_t count);
  // Rows of images, held ones and others.
  std::int64_t num_rows() const { return num_rows_; }

 private:
  using Images = std::map<Hash128, std::unique_ptr<Image>>;
  void give_up(Images::iterator image);

  RowRanges& rows_;
  Images images_;
  std::set<std::pair<std::uint64_t, Image*>> loose_;  // that nobody holds, by when they were used last
  std::uint64_t clock_ = 0;
  std::int64_t num_rows_ = 0;
};

}  // namespace tessera
