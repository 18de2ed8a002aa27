// Decodes the first frame of a GIF with giflib. https://www.w3.org/Graphics/GIF/spec-gif89a.txt
#include <fmt/format.h>
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/image/decoders.h"

namespace tessera {
namespace {

constexpr std::string_view kGif = "GIF";

struct GifSource {
  const std::uint8_t* next;
  std::size_t left;

  static int read(GifFileType* gif, GifByteType* to, int size) {
    auto& source = *static_cast<GifSource*>(gif->UserData);
    const std::size_t taken = std::min(static_cast<std::size_t>(std::max(size, 0)), source.left);
    if (taken > 0) std::memcpy(to, source.next, taken);
    source.next += taken;
    source.left -= taken;
    return static_cast<int>(taken);
  }
};

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using OpenGif = std::unique_ptr<GifFileType, CloseGif>;

Status gif_error(int code) {
  const char* words = GifErrorString(code);
  return unreadable_image(kGif, words != nullptr ? words : "it is damaged");
}

// Reads the file up to the description of the first frame. Returns the index of the frame's transparent colour, or
// nothing if the frame has none.
Result<std::optional<int>> find_frame(GifFileType& gif) {
  std::optional<int> transparent;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(&gif, &type) == GIF_ERROR) return gif_error(gif.Error);
    if (type == TERMINATE_RECORD_TYPE) return unreadable_image(kGif, "it has no frame");
    if (type == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(&gif) == GIF_ERROR) return gif_error(gif.Error);
      return transparent;
    }
    if (type != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;  // the size of the block, then the block's bytes
    if (DGifGetExtension(&gif, &code, &block) == GIF_ERROR) return gif_error(gif.Error);
    GraphicsControlBlock control{};
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr &&
        DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
      transparent =
          control.TransparentColor == NO_TRANSPARENT_COLOR ? std::nullopt : std::optional(control.TransparentColor);
    while (block != nullptr)
      if (DGifGetExtensionNext(&gif, &block) == GIF_ERROR) return gif_error(gif.Error);
  }
}

// Writes one pixel. If the colour index is outside of the palette, the pixel is grey with the index as its value, as in
// Pillow.
void put_pixel(const ColorMapObject* colours, int index, std::uint8_t* rgb) {
  const bool known = colours != nullptr && index < colours->ColorCount;
  const auto grey = static_cast<std::uint8_t>(index);
  rgb[0] = known ? colours->Colors[index].Red : grey;
  rgb[1] = known ? colours->Colors[index].Green : grey;
  rgb[2] = known ? colours->Colors[index].Blue : grey;
}

// Returns the frame's row numbers in the order in which the file stores the rows.
std::vector<std::int32_t> row_order(std::int32_t height, bool interlaced) {
  std::vector<std::int32_t> rows;
  rows.reserve(static_cast<std::size_t>(height));
  struct Pass {
    std::int32_t first, step;
  };
  constexpr Pass kPlain[] = {{0, 1}};
  constexpr Pass kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  for (const Pass& pass : interlaced ? std::span<const Pass>(kInterlaced) : std::span<const Pass>(kPlain))
    for (std::int32_t y = pass.first; y < height; y += pass.step) rows.push_back(y);
  return rows;
}

}  // namespace

// Decodes the GIF's logical screen with the first frame on it. The part of the screen outside of the frame gets the
// transparent colour, or colour 0 if there is none.
Result<StoredImage> decode_gif(std::span<const std::byte> file, const DecodeLimits& limits) {
  GifSource source{bytes_of(file), file.size()};
  int error = 0;
  const OpenGif gif(DGifOpen(&source, &GifSource::read, &error));
  if (gif == nullptr) return gif_error(error);
  const std::optional<int> transparent = TRY(find_frame(*gif));
  const GifImageDesc& frame = gif->Image;
  const std::int64_t width = std::max<std::int64_t>(gif->SWidth, std::int64_t{frame.Left} + frame.Width);
  const std::int64_t height = std::max<std::int64_t>(gif->SHeight, std::int64_t{frame.Top} + frame.Height);
  TRY(check_image_size(kGif, width, height, limits));
  if (frame.Width < 1 || frame.Height < 1) return unreadable_image(kGif, "its first frame has no pixels");

  const ColorMapObject* colours = frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap;
  StoredImage stored{make_image(static_cast<std::int32_t>(width), static_cast<std::int32_t>(height))};
  std::vector<std::uint8_t>& rgb = stored.image.rgb;
  for (std::size_t i = 0; i < rgb.size(); i += 3) put_pixel(colours, transparent.value_or(0), &rgb[i]);
  std::vector<GifPixelType> line(static_cast<std::size_t>(frame.Width));
  for (const std::int32_t y : row_order(frame.Height, frame.Interlace)) {
    if (DGifGetLine(gif.get(), line.data(), frame.Width) == GIF_ERROR) return gif_error(gif->Error);
    std::uint8_t* to = &rgb[static_cast<std::size_t>((std::int64_t{frame.Top} + y) * width + frame.Left) * 3];
    for (std::size_t x = 0; x < line.size(); ++x) put_pixel(colours, line[x], to + 3 * x);
  }
  return stored;
}

}  // namespace tessera
