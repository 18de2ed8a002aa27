// Images as requests bring them, made into what a model with a vision tower takes.
//
// Threads: an ImageInput is immutable; any thread uses it.
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
#include "tessera/server/work/memory_budget.h"

namespace tessera {

class Engine;

// What a model does with images, and how much of them a request may bring.
struct ImageInput {
  ImageProcessorConfig processor{};
  TokenId placeholder{};                                      // each token of an image has this id
  std::string placeholder_text{};                             // as texts write it, once for an image
  std::int64_t most_images = 16;                              // of a prompt
  DecodeLimits limits{.most_bytes = std::int64_t{32} << 20};  // of one image
  std::shared_ptr<const UrlFetcher> fetcher{};                // null: URLs are refused
  // What images are charged to: files and pixels while they are prepared, then the patches until the engine has done
  // with them.
  std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>(std::int64_t{8} << 30);
  // Threads that requests of several images may take beside their own, of all requests: one a core.
  std::shared_ptr<std::atomic<int>> free_threads =
      std::make_shared<std::atomic<int>>(static_cast<int>(std::thread::hardware_concurrency()));
};

// None where the engine's model reads no images. What is done to them says preprocessor_config.json in the model's
// folder, or else what the family's published models have. Errors: a file that cannot be read, or of another model.
Result<std::optional<ImageInput>> image_input_of(const Engine& engine);

// An image of a request that was not looked into yet.
struct GivenImage {
  // data: URL, http(s) URL, or base64 where `may_be_base64`. Borrowed from the request's body.
  std::string_view text{};
  bool low_detail = false;  // resized to at most kLowDetailPixels
  bool may_be_base64 = false;
  std::string param{};  // the field it stands in
};

inline constexpr std::int64_t kLowDetailPixels = 512 * 512;

// 400 where `given` has more images than a prompt may.
ApiStatus check_image_count(const ImageInput& input, std::span<const GivenImage> given);

using PreparedImages = std::vector<std::shared_ptr<const Patches>>;

// Fetches, decodes, resizes; several images at once where threads are free. Slow: not for the I/O thread. Errors: 400
// that names the image's field, for what is no image, beyond a limit, or comes to more than `most_tokens` together with
// those before it; 429 where too many are being fetched; those of MemoryCharge::set.
ApiResult<PreparedImages> prepare_images(const ImageInput& input, std::span<const GivenImage> given,
                                         std::int64_t most_tokens);
// The same of one file's content.
Result<std::shared_ptr<const Patches>> prepare_image(const ImageInput& input, std::span<const std::byte> file);

}  // namespace tessera
