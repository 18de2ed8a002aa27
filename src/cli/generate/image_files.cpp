#include "tessera/cli/generate/image_files.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>

#include "tessera/base/json.h"
#include "tessera/server/images/prompt_images.h"

namespace tessera::cli {

Status add_image_files(const Engine& engine, const std::vector<std::string>& files, Request& request) {
  if (files.empty()) return ok_status();
  const std::optional<ImageInput> input = TRY(image_input_of(engine));
  if (!input) {
    return invalid_argument(fmt::format("--image: {} reads no images; accepted is a model with a vision tower",
                                        engine.options().model_path));
  }
  PreparedImages images;
  for (const std::string& file : files) {
    const auto most = static_cast<std::size_t>(input->limits.most_bytes);
    const std::string bytes = TRY(read_text_file(file, most).with_context("--image"));
    images.push_back(
        TRY(prepare_image(*input, std::as_bytes(std::span(bytes))).with_context(fmt::format("--image {}", file))));
  }
  return place_images(*input, images, request.prompt, request.images).with_context("--image");
}

}  // namespace tessera::cli
