// Prepares the images of requests as input of a model with a vision tower.
//
// Threads: an ImageInput is immutable, so any thread may use it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/image/decode.h"
#include "tessera/image/patches.h"
#include "tessera/image/processor_config.h"
#include "tessera/server/api_result.h"
#include "tessera/server/http/url_fetch.h"
#include "tessera/server/memory_budget.h"

namespace tessera {

class Engine;

// Says how a model processes images, and how many images a prompt may have.
struct ImageInput {
  ImageProcessorConfig processor{};
  TokenId placeholder{};  // every token of an image has this id
  // The placeholder's text, which a template writes once per image.
  std::string placeholder_text{};
  std::int64_t most_images = 16;                              // maximum number of images in a prompt
  DecodeLimits limits{.most_bytes = std::int64_t{32} << 20};  // limits for one image
  std::shared_ptr<const UrlFetcher> fetcher{};                // null: URLs are refused
  // The budget for images. While images are prepared, it is charged with their files and pixels. Afterwards it is
  // charged with the patches until the engine no longer needs them.
  std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>(std::int64_t{8} << 30);
  // The number of free helper threads, at first one for each core. A request prepares its images on its own thread and
  // on the helper threads that are free.
  std::shared_ptr<std::atomic<int>> free_threads =
      std::make_shared<std::atomic<int>>(static_cast<int>(std::thread::hardware_concurrency()));
};

// Returns how the engine's model processes images, or nothing if the model reads no images. The settings come from
// preprocessor_config.json in the model's folder. Without this file, they are those of the family's published models.
// Errors: a file that cannot be read or belongs to another model.
Result<std::optional<ImageInput>> image_input_of(const Engine& engine);

// An image of a request, before it is decoded.
struct GivenImage {
  // A data: URL, an http(s) URL, or base64 if `may_be_base64`. Borrowed from the request's body.
  std::string_view text{};
  bool low_detail = false;  // resized to at most kLowDetailPixels
  bool may_be_base64 = false;
  std::string param{};  // the field that holds the image
};

inline constexpr std::int64_t kLowDetailPixels = 512 * 512;

// The limit for bodies that may have images in base64.
inline constexpr std::size_t kMostImageBodyBytes = std::size_t{64} << 20;

// Returns a 400 if `given` has more images than a prompt may have.
ApiStatus check_image_count(const ImageInput& input, std::span<const GivenImage> given);

using PreparedImages = std::vector<std::shared_ptr<const Patches>>;

// Fetches, decodes and resizes the images, several at once if threads are free. This is slow, so do not call it on the
// I/O thread. Returns a 400 that names the image's field if the data is not an image, if the image exceeds a limit, or
// if the images up to this one have more than `most_tokens` tokens together. Returns a 429 if too many URLs are being
// fetched. Also returns the errors of MemoryCharge::set.
ApiResult<PreparedImages> prepare_images(const ImageInput& input, std::span<const GivenImage> given,
                                         std::int64_t most_tokens);
// Prepares one image from a file's content.
Result<std::shared_ptr<const Patches>> prepare_image(const ImageInput& input, std::span<const std::byte> file);

}  // namespace tessera
