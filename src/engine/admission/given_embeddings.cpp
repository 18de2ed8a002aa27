#include "tessera/engine/admission/given_embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace tessera {

Status check_embeddings(const Request& request, std::int64_t hidden_size) {
  const std::vector<float>& values = request.input_embeds;
  if (!request.images.empty()) return invalid_argument("input_embeds and images are given; accepted is one of them");
  if (values.size() % static_cast<std::size_t>(hidden_size) != 0) {
    return invalid_argument(fmt::format("input_embeds has {} numbers, which is not a multiple of the hidden size {}",
                                        values.size(), hidden_size));
  }
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
    return invalid_argument("input_embeds has a number that is not finite");
  return ok_status();
}

void take_embeddings(const ModelConfig& config, Request& request) {
  if (request.input_embeds.empty()) return;
  const auto from = static_cast<std::size_t>(config.hidden_size);
  const auto to = static_cast<std::size_t>(config.embedding_row_values());
  const std::size_t rows = request.input_embeds.size() / from;
  request.prompt.assign(rows, TokenId(0));
  if (from == to) return;
  std::vector<float> wide(rows * to);
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(request.input_embeds.begin() + static_cast<std::ptrdiff_t>(row * from), from,
                wide.begin() + static_cast<std::ptrdiff_t>(row * to));
  request.input_embeds = std::move(wide);
}

}  // namespace tessera
