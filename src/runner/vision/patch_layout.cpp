#include "tessera/runner/vision/patch_layout.h"

#include <algorithm>

namespace tessera {
namespace {

// The place of a merge unit (merge size × merge size patches) in its image.
struct Unit {
  std::int32_t frame;
  std::int32_t row;  // counted in merge units
  std::int32_t column;
};

// Returns value i of `count` equally spaced values from 0 to `last`, rounded as torch.linspace does.
float linspace(std::int64_t last, std::int64_t count, std::int64_t i) {
  if (count == 1) return 0;
  const float end = static_cast<float>(last);
  const float step = end / static_cast<float>(count - 1);
  return i < count / 2 ? step * static_cast<float>(i) : end - step * static_cast<float>(count - 1 - i);
}

// One axis of a bilinear sample. It has two learned positions and the weight of the second one.
struct AxisSample {
  std::int32_t low;
  std::int32_t high;
  float share;
};
AxisSample sample_axis(std::int64_t side, std::int64_t count, std::int64_t i) {
  const float at = linspace(side - 1, count, i);
  const auto low = static_cast<std::int32_t>(at);
  return {.low = low,
          .high = std::min(low + 1, static_cast<std::int32_t>(side - 1)),
          .share = at - static_cast<float>(low)};
}

// Adds a patch's learned positions and their weights, like Qwen3VLVisionModel.fast_pos_embed_interpolate.
void append_position(const PatchGrid& grid, const VisionConfig& config, std::int32_t row, std::int32_t column,
                     PatchLayout& layout) {
  const AxisSample y = sample_axis(config.position_side, grid.h, row);
  const AxisSample x = sample_axis(config.position_side, grid.w, column);
  const auto side = static_cast<std::int32_t>(config.position_side);
  for (const std::int32_t at :
       {y.low * side + x.low, y.low * side + x.high, y.high * side + x.low, y.high * side + x.high})
    layout.position_rows.push_back(at);
  for (const float weight :
       {(1 - y.share) * (1 - x.share), (1 - y.share) * x.share, y.share * (1 - x.share), y.share * x.share})
    layout.position_weights.push_back(weight);
}

void append_range(std::vector<std::int32_t>& ranges, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = 0; i < rows; ++i) {
    ranges.push_back(static_cast<std::int32_t>(begin));
    ranges.push_back(static_cast<std::int32_t>(end));
  }
}

class ImageLayout {
 public:
  ImageLayout(const PatchGrid& grid, const VisionConfig& config, PatchLayout& layout)
      : grid_(grid),
        config_(config),
        layout_(layout),
        merge_(static_cast<std::int32_t>(config.merge_size)),
        rows_(grid.h / merge_),
        columns_(grid.w / merge_),
        first_unit_(static_cast<std::int64_t>(layout.units.size())) {}

  void append() {
    for (std::int32_t frame = 0; frame < grid_.t; ++frame) {
      const std::int64_t begin = layout_.patches();
      if (config_.kind == VisionConfig::Kind::kQwen25) {
        append_windows(frame);
      } else {
        append_block(frame, 0, rows_, 0, columns_);
      }
      const std::int64_t patches = std::int64_t{grid_.h} * grid_.w;
      append_range(layout_.image_ranges, patches, begin, begin + patches);
    }
    if (config_.kind == VisionConfig::Kind::kQwen25) append_token_order();
  }

 private:
  // Adds windows row by row. Windows at the right and lower edges are smaller
  // (Qwen2_5_VisionTransformer.get_window_index).
  void append_windows(std::int32_t frame) {
    const auto side = static_cast<std::int32_t>(config_.window_units());
    for (std::int32_t row = 0; row < rows_; row += side)
      for (std::int32_t column = 0; column < columns_; column += side) {
        const std::int64_t begin = static_cast<std::int64_t>(layout_.window_ranges.size()) / 2;
        const std::int32_t height = std::min(side, rows_ - row);
        const std::int32_t width = std::min(side, columns_ - column);
        append_block(frame, row, row + height, column, column + width);
        const std::int64_t patches = std::int64_t{height} * width * merge_ * merge_;
        append_range(layout_.window_ranges, patches, begin, begin + patches);
      }
  }

  void append_block(std::int32_t frame, std::int32_t row, std::int32_t row_end, std::int32_t column,
                    std::int32_t column_end) {
    for (std::int32_t y = row; y < row_end; ++y)
      for (std::int32_t x = column; x < column_end; ++x) append_unit({frame, y, x});
  }

  void append_unit(const Unit& unit) {
    layout_.units.push_back((unit.frame * rows_ + unit.row) * columns_ + unit.column);
    for (std::int32_t y = 0; y < merge_; ++y)
      for (std::int32_t x = 0; x < merge_; ++x) {
        const std::int32_t row = unit.row * merge_ + y;
        const std::int32_t column = unit.column * merge_ + x;
        layout_.positions.push_back(row);
        layout_.positions.push_back(column);
        if (config_.position_side > 0) append_position(grid_, config_, row, column, layout_);
      }
  }

  // Adds the image's part of token_order, which gives the output row of each merge unit. Merge units are in the order
  // of the image.
  void append_token_order() {
    const auto end = static_cast<std::int64_t>(layout_.units.size());
    layout_.token_order.resize(static_cast<std::size_t>(end));
    for (std::int64_t row = first_unit_; row < end; ++row)
      layout_.token_order[static_cast<std::size_t>(first_unit_ + layout_.units[static_cast<std::size_t>(row)])] =
          static_cast<std::int32_t>(row);
  }

  const PatchGrid& grid_;
  const VisionConfig& config_;
  PatchLayout& layout_;
  std::int32_t merge_;
  std::int32_t rows_;  // number of rows of the image, in merge units
  std::int32_t columns_;
  std::int64_t first_unit_;  // first unit of the image
};

}  // namespace

void PatchLayout::clear() {
  for (std::vector<std::int32_t>* list :
       {&positions, &image_ranges, &window_ranges, &token_order, &position_rows, &units})
    list->clear();
  position_weights.clear();
}

void append_image(const PatchGrid& grid, const VisionConfig& config, PatchLayout& layout) {
  ImageLayout(grid, config, layout).append();
}

void pad_layout(std::int64_t patches, const VisionConfig& config, PatchLayout& layout) {
  const auto rows = static_cast<std::size_t>(patches);
  const auto units = rows / static_cast<std::size_t>(config.merged_patches());
  layout.positions.resize(2 * rows, 0);
  layout.image_ranges.resize(2 * rows, 0);
  layout.units.resize(units, 0);
  if (config.kind == VisionConfig::Kind::kQwen25) {
    layout.window_ranges.resize(2 * rows, 0);
    for (std::size_t row = layout.token_order.size(); row < units; ++row)
      layout.token_order.push_back(static_cast<std::int32_t>(row));
  }
  if (config.position_side > 0) {
    layout.position_rows.resize(4 * rows, 0);
    layout.position_weights.resize(4 * rows, 0);
  }
}

}  // namespace tessera
