// The encoder cache: finds an image's embedding rows on the device (runner/embedding_rows.h) by the image's content.
// Sequences with the same image share its rows. Rows that no sequence holds stay until other images need the room. The
// least recently used rows are then evicted first.
//
//   ImageRows::Image* image = images.take(content, tokens);  // null if the images in use leave no room
//   … if image->is_written is false, the tower writes the rows: images.set_written(content, true) …
//   images.release(*image);
//
// Pure bookkeeping; used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tessera/base/hash.h"
#include "tessera/engine/images/row_ranges.h"

namespace tessera {

class ImageRows {
 public:
  struct Image {
    Hash128 content{};  // equal to Patches::content
    std::int64_t first_row = 0;
    std::int64_t count = 0;   // number of rows
    std::int64_t users = 0;   // number of sequences that hold the image
    bool is_written = false;  // enqueued work has written the rows or will write them
    std::uint64_t last_used = 0;
  };

  // Takes ranges from `rows`, which must outlive this object and may have other users.
  explicit ImageRows(RowRanges& rows) : rows_(rows) {}
  ImageRows(const ImageRows&) = delete;
  ImageRows& operator=(const ImageRows&) = delete;

  // Returns the image's `count` rows. They are held until release(). Returns null if there would not be enough room
  // even after evicting all rows that no sequence holds.
  Image* take(const Hash128& content, std::int64_t count);
  // Undoes one take() of the image. Frees the rows at once if no sequence holds them any more and they were never
  // written.
  void release(Image& image);
  // Sets `is_written` of the image. If the new value is false and no sequence holds the image, frees the rows. Has no
  // effect if the rows were evicted.
  void set_written(const Hash128& content, bool is_written);
  // Evicts rows that no sequence holds until `count` neighbouring rows are free. Returns false if they cannot be freed.
  bool make_room(std::int64_t count);
  // Returns the number of rows of all images, held or not.
  std::int64_t num_rows() const { return num_rows_; }

 private:
  using Images = std::map<Hash128, std::unique_ptr<Image>>;
  void give_up(Images::iterator image);

  RowRanges& rows_;
  Images images_;
  std::set<std::pair<std::uint64_t, Image*>> loose_;  // images that no sequence holds, sorted by last use
  std::uint64_t clock_ = 0;
  std::int64_t num_rows_ = 0;
};

}  // namespace tessera
