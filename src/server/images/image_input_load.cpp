#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/log.h"
#include "tessera/engine/engine.h"
#include "tessera/engine/images/model_processor.h"
#include "tessera/server/images/image_input.h"

namespace tessera {
namespace {

Status check_tower(const ImageProcessorConfig& processor, const VisionConfig& tower) {
  if (processor.patch_size == tower.patch_size && processor.merge_size == tower.merge_size &&
      processor.temporal_patch_size == tower.temporal_patch_size)
    return ok_status();
  return invalid_argument(fmt::format(
      "preprocessor_config.json, or its defaults if it is missing, has patches of {} pixels and {} frames, merged {} × "
      "{}; config.json's tower takes {} pixels and {} frames, merged {} × {}",
      processor.patch_size, processor.temporal_patch_size, processor.merge_size, processor.merge_size, tower.patch_size,
      tower.temporal_patch_size, tower.merge_size, tower.merge_size));
}

// Lowers the pixel limit so that an image has at most `tower.max_patches` patches, because the tower's largest forward
// pass takes no more. The engine chose this number so that the tokens of an image also fit into the context.
void lower_pixels(const VisionOptions& tower, ImageProcessorConfig& processor) {
  const std::int64_t most = tower.max_patches * processor.patch_size * processor.patch_size;
  if (processor.max_pixels <= most) return;
  log_info("server", "images are resized to at most {} pixels, not {}: a forward of the tower has up to {} patches",
           most, processor.max_pixels, tower.max_patches);
  processor.max_pixels = most;
  processor.min_pixels = std::min(processor.min_pixels, most);
}

}  // namespace

Result<std::optional<ImageInput>> image_input_of(const Engine& engine) {
  const std::optional<ImageTokens>& tokens = engine.config().images;
  const std::optional<VisionConfig>& tower = engine.config().vision;
  if (!tokens || !tower) return std::optional<ImageInput>();
  ImageInput input{.processor = TRY(read_model_processor(engine.options().model_path, engine.options().projector_path)),
                   .placeholder = tokens->image};
  TRY(check_tower(input.processor, *tower));
  lower_pixels(engine.runner().options().vision, input.processor);
  if (engine.tokenizer() != nullptr)
    input.placeholder_text = engine.tokenizer()->id_to_token(tokens->image).value_or("");
  return std::optional(std::move(input));
}

}  // namespace tessera
