#include "tessera/server/images/image_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "tessera/base/base64.h"
#include "tessera/base/json_fields.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/http/http_message.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

constexpr std::string_view kScheme = "data:";
constexpr std::string_view kCoding = ";base64";

ApiError wrong_image(const GivenImage& image, std::string_view why) {
  return invalid_field(image.param, fmt::format("request: field \"{}\": {}", image.param, why));
}

bool has_scheme(std::string_view text, std::string_view scheme) {
  return text.size() >= scheme.size() && equals_ignoring_case(text.substr(0, scheme.size()), scheme);
}

ApiResult<std::string> decode_base64(const GivenImage& image, std::string_view text) {
  std::optional<std::string> bytes = from_base64(text);
  if (!bytes) {
    return wrong_image(image, fmt::format("\"{}\" is no base64; accepted: the standard alphabet with padding and "
                                          "without blanks",
                                          clip_text(std::string(text.substr(0, 200)))));
  }
  return *std::move(bytes);
}

// Decodes a data: URL. Ignores the type before the comma, because the image's bytes decide the type.
ApiResult<std::string> read_data_url(const GivenImage& image) {
  const std::size_t comma = image.text.find(',');
  const std::string_view head = image.text.substr(0, comma);
  if (comma == std::string_view::npos || !head.ends_with(kCoding))
    return wrong_image(image, "a data: URL that is not of base64; accepted: data:<type>;base64,<content>");
  return decode_base64(image, image.text.substr(comma + 1));
}

ApiResult<std::string> read_url(const ImageInput& input, const GivenImage& image) {
  if (input.fetcher == nullptr) {
    return unsupported_field(image.param,
                             fmt::format("request: field \"{}\" is a URL of another server; accepted: data: URLs, "
                                         "unless the server runs with --allow-image-urls",
                                         image.param));
  }
  Result<std::string> bytes = input.fetcher->get(std::string(image.text));
  if (bytes.ok()) return *std::move(bytes);
  if (bytes.status().code() != StatusCode::kInvalidArgument) return api_error(bytes.status(), image.param);
  return wrong_image(image, bytes.status().message());
}

ApiResult<std::string> read_bytes(const ImageInput& input, const GivenImage& image) {
  if (has_scheme(image.text, kScheme)) return read_data_url(image);
  if (has_scheme(image.text, "http:") || has_scheme(image.text, "https:")) return read_url(input, image);
  if (image.may_be_base64) return decode_base64(image, image.text);
  return wrong_image(image, fmt::format("\"{}\" is no URL of an image; accepted: data:<type>;base64,<content>{}",
                                        clip_text(std::string(image.text.substr(0, 200))),
                                        input.fetcher != nullptr ? ", http://… or https://…" : ""));
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

ImageProcessorConfig processor_of(const ImageInput& input, const GivenImage& image) {
  ImageProcessorConfig config = input.processor;
  if (image.low_detail) config.max_pixels = std::max(config.min_pixels, std::min(config.max_pixels, kLowDetailPixels));
  return config;
}

ApiError too_many_tokens(const GivenImage& image, std::int32_t width, std::int32_t height, std::int64_t tokens,
                         std::int64_t most) {
  ApiError error = wrong_image(
      image, fmt::format("an image of {} × {} pixels, with which the images come to {} tokens; accepted: up to {}, "
                         "the model's context",
                         width, height, tokens, most));
  error.code = "context_length_exceeded";
  return error;
}

// An image and the charge for its memory. The charge lasts until the last owner releases the image.
struct ChargedPatches {
  Patches patches;
  std::shared_ptr<MemoryBudget> budget;
  MemoryCharge charge;
};

std::int64_t bytes_of(const Patches& patches) {
  return static_cast<std::int64_t>(patches.values.size() * sizeof(float));
}

// Returns the bytes that are charged for make_patches(): the resized pixels, plus either the resized rows or the
// patches, whichever take more. Only one of these two is charged, because they never exist together. Rows are resized
// before columns, so each row of `image` gives a resized row.
std::int64_t bytes_of_patches(const Image& image, const PatchGrid& grid, const ImageProcessorConfig& config) {
  constexpr std::int64_t kColours = 3;
  const std::int64_t row = kColours * grid.w * config.patch_size;
  const std::int64_t resized = row * grid.h * config.patch_size;
  const std::int64_t patches = resized * config.temporal_patch_size * static_cast<std::int64_t>(sizeof(float));
  return resized + std::max(row * image.height, patches);
}

// Prepares the images of one request. Threads take images in order, so all images before a failing one are processed
// too. The error is therefore that of the first wrong image, for any number of threads.
class Preparation {
 public:
  Preparation(const ImageInput& input, std::span<const GivenImage> given, std::int64_t most_tokens)
      : input_(input), given_(given), most_tokens_(most_tokens), results_(given.size()) {}

  ApiResult<PreparedImages> run() {
    {
      std::vector<std::jthread> helpers;
      helpers.reserve(given_.size());
      while (helpers.size() + 1 < given_.size() && add_helper(helpers)) {
      }
      work();
    }
    PreparedImages prepared;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      OneImage& result = results_[i];
      if (result.thrown) return rethrown(result.thrown, given_[i]);
      if (result.error) return *std::move(result.error);
      tokens += result.tokens;
      if (tokens > most_tokens_) return too_many_tokens(given_[i], result.width, result.height, tokens, most_tokens_);
      prepared.push_back(std::move(result.patches));
    }
    return prepared;
  }

 private:
  struct OneImage {
    std::optional<ApiError> error{};
    std::exception_ptr thrown{};  // the exception that the preparation of this image threw; null if none
    std::int64_t tokens = 0;
    std::int32_t width = 0;  // size in pixels before resizing
    std::int32_t height = 0;
    std::shared_ptr<const Patches> patches{};
  };

  // If memory ran out, returns an error that names the image. Rethrows any other exception.
  static ApiError rethrown(const std::exception_ptr& thrown, const GivenImage& image) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      return api_error(resource_exhausted("out of memory"), image.param);
    }
  }

  // Starts a thread that helps to prepare images. Returns false if no thread is free or the system cannot start one.
  bool add_helper(std::vector<std::jthread>& helpers) {
    if (input_.free_threads->fetch_sub(1) > 0) {
      try {
        helpers.emplace_back([this] {
          work();
          input_.free_threads->fetch_add(1);
        });
        return true;
      } catch (const std::exception&) {  // no thread could be started, or memory ran out
      }
    }
    input_.free_threads->fetch_add(1);
    return false;
  }

  void work() {
    while (!stop_) {
      const std::size_t i = next_.fetch_add(1);
      if (i >= given_.size()) return;
      try {
        ApiStatus done = prepare(given_[i], results_[i]);
        if (done.ok()) continue;
        results_[i].error = std::move(done.error());
      } catch (...) {
        results_[i].thrown = std::current_exception();
      }
      stop_ = true;
    }
  }

  // Reads an image's bytes. Fetches the URLs of a request one after another: the server limits simultaneous fetches,
  // and one request must not take up the whole limit.
  ApiResult<std::string> read(const GivenImage& image, MemoryCharge& memory) {
    if (has_scheme(image.text, kScheme)) {
      TRY(hold(memory, std::ssize(image.text)));
      return read_bytes(input_, image);
    }
    const std::lock_guard<std::mutex> lock(fetching_);
    TRY(hold(memory, std::max(input_.limits.most_bytes, static_cast<std::int64_t>(image.text.size()))));
    return read_bytes(input_, image);
  }

  ApiStatus hold(MemoryCharge& memory, std::int64_t bytes) const { return memory.set(bytes, held_); }

  // Decodes an image within its limits. `memory` is charged with the file and with what decoding needs.
  ApiResult<Image> decode(const GivenImage& image, std::string_view bytes, MemoryCharge& memory) const {
    std::optional<ApiError> refused;
    const std::function<Status(std::int64_t)> take_memory = [&](std::int64_t pixels) {
      ApiStatus held = hold(memory, std::ssize(bytes) + pixels);
      if (held.ok()) return ok_status();
      refused = std::move(held.error());
      return resource_exhausted(refused->message);
    };
    DecodeLimits limits = input_.limits;
    limits.take_memory = &take_memory;
    Result<Image> pixels = decode_image(bytes_of(bytes), limits);
    if (refused) return *std::move(refused);
    if (!pixels.ok()) return wrong_image(image, pixels.status().message());
    return *std::move(pixels);
  }

  ApiStatus prepare(const GivenImage& image, OneImage& result) {
    const auto named = [&](const Status& status) { return wrong_image(image, status.message()); };
    MemoryCharge memory(input_.memory.get());
    const std::string bytes = TRY(read(image, memory));
    const Image pixels = TRY(decode(image, bytes, memory));
    const ImageProcessorConfig config = processor_of(input_, image);
    // Checks the size before memory is allocated for the resized pixels.
    const Result<PatchGrid> grid = patch_grid(pixels.width, pixels.height, config);
    if (!grid.ok()) return named(grid.status());
    result.width = pixels.width;
    result.height = pixels.height;
    result.tokens = grid->tokens(config.merge_size);
    if (tokens_.fetch_add(result.tokens) + result.tokens > most_tokens_) {
      stop_ = true;  // run() says which image was too many
      return api_ok();
    }
    TRY(hold(memory, std::ssize(bytes) + std::ssize(pixels.rgb) + bytes_of_patches(pixels, *grid, config)));
    Result<Patches> patches = make_patches(pixels, config);
    if (!patches.ok()) return named(patches.status());
    TRY(hold(memory, bytes_of(*patches)));
    held_ += bytes_of(*patches);
    const auto charged = std::make_shared<ChargedPatches>(
        ChargedPatches{.patches = *std::move(patches), .budget = input_.memory, .charge = std::move(memory)});
    result.patches = std::shared_ptr<const Patches>(charged, &charged->patches);
    return api_ok();
  }

  const ImageInput& input_;
  std::span<const GivenImage> given_;
  std::int64_t most_tokens_;
  std::vector<OneImage> results_;
  std::mutex fetching_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::int64_t> tokens_ = 0;
  std::atomic<std::int64_t> held_ = 0;  // bytes of the images that are ready
  std::atomic<bool> stop_ = false;
};

}  // namespace

ApiStatus check_image_count(const ImageInput& input, std::span<const GivenImage> given) {
  if (std::ssize(given) <= input.most_images) return api_ok();
  return wrong_image(
      given[static_cast<std::size_t>(input.most_images)],
      fmt::format("one of {} images; accepted: up to {} (--max-images-per-prompt)", given.size(), input.most_images));
}

ApiResult<PreparedImages> prepare_images(const ImageInput& input, std::span<const GivenImage> given,
                                         std::int64_t most_tokens) {
  TRY(check_image_count(input, given));
  if (!given.empty()) TRY(take_on(TextWork::kImages));
  return Preparation(input, given, most_tokens).run();
}

Result<std::shared_ptr<const Patches>> prepare_image(const ImageInput& input, std::span<const std::byte> file) {
  const Image pixels = TRY(decode_image(file, input.limits));
  return std::make_shared<const Patches>(TRY(make_patches(pixels, input.processor)));
}

}  // namespace tessera
