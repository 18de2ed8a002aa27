#include "tessera/engine/images/image_rows.h"

namespace tessera {

ImageRows::Image* ImageRows::take(const Hash128& content, std::int64_t count) {
  const auto known = images_.find(content);
  if (known != images_.end()) {
    Image* image = known->second.get();
    if (image->users++ == 0) loose_.erase({image->last_used, image});
    return image;
  }
  if (!make_room(count)) return nullptr;
  num_rows_ += count;
  auto made =
      std::make_unique<Image>(Image{.content = content, .first_row = rows_.take(count), .count = count, .users = 1});
  return images_.emplace(content, std::move(made)).first->second.get();
}

void ImageRows::release(Image& image) {
  if (--image.users > 0) return;
  image.last_used = ++clock_;
  loose_.insert({image.last_used, &image});
  if (!image.is_written) give_up(images_.find(image.content));
}

void ImageRows::set_written(const Hash128& content, bool is_written) {
  const auto image = images_.find(content);
  if (image == images_.end()) return;
  image->second->is_written = is_written;
  if (!is_written && image->second->users == 0) give_up(image);
}

bool ImageRows::make_room(std::int64_t count) {
  while (!rows_.has_room(count)) {
    if (loose_.empty()) return false;
    give_up(images_.find(loose_.begin()->second->content));
  }
  return true;
}

void ImageRows::give_up(Images::iterator image) {
  const Image& rows = *image->second;
  loose_.erase({rows.last_used, image->second.get()});
  rows_.give_back(rows.first_row);
  num_rows_ -= rows.count;
  images_.erase(image);
}

}  // namespace tessera
