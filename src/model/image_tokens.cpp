#include "tessera/model/image_tokens.h"

namespace tessera {

Result<ImageTokens> read_image_tokens(const Fields& fields, std::int64_t vocab_size) {
  const auto id = [&](std::string_view key) -> Result<TokenId> {
    return TokenId(static_cast<std::int32_t>(TRY(fields.required_int(key, 0, vocab_size - 1))));
  };
  return ImageTokens{.image = TRY(id("image_token_id")),
                     .vision_start = TRY(id("vision_start_token_id")),
                     .vision_end = TRY(id("vision_end_token_id"))};
}

}  // namespace tessera
