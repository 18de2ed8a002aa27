#include "tessera/model/image_tokens.h"

namespace tessera {

Result<ImageTokens> read_image_tokens(const Fields& fields, std::int64_t vocab_size) {
  const std::int64_t image = TRY(fields.required_int("image_token_id", 0, vocab_size - 1));
  // Some files omit the ids of vision_start and vision_end. In all published tokenizers, vision_start is the
  // placeholder's id minus three, and vision_end is that id minus two.
  const auto id = [&](std::string_view key, std::int64_t otherwise) -> Result<TokenId> {
    const std::int64_t given = TRY(fields.optional_int(key, 0, vocab_size - 1)).value_or(otherwise);
    if (given < 0) return fields.wrong(key, "an id, where image_token_id is below 3");
    return TokenId(static_cast<std::int32_t>(given));
  };
  const TokenId start = TRY(id("vision_start_token_id", image - 3));
  const TokenId end = TRY(id("vision_end_token_id", image - 2));
  return ImageTokens{.image = TokenId(static_cast<std::int32_t>(image)), .vision_start = start, .vision_end = end};
}

}  // namespace tessera
