#include "tessera/server/work/generation_facts.h"

namespace tessera {

void note_start(GenerationFacts& facts, std::string_view id, std::span<const Request> requests) {
  facts.id = id;
  if (requests.empty()) return;
  const Request& first = requests.front();
  facts.asked = {.texts = std::ssize(requests),
                 .generates = first.generates(),
                 .max_tokens = first.stop.max_new_tokens,
                 .temperature = first.sampling.temperature,
                 .top_p = first.sampling.top_p};
}

void note_end(GenerationFacts& facts, const Completion& end, FinishReason finish) {
  if (!facts.tokens) facts.tokens.emplace();
  facts.tokens->prompt += end.prompt_tokens;
  facts.tokens->cached += end.cached_tokens;
  facts.tokens->completion += std::ssize(end.output_ids);
  facts.finish = finish_reason_name(finish);
  facts.queue_s = end.queue_ms * 1e-3;
  facts.first_token_s = end.time_to_first_token_ms * 1e-3;
  facts.engine_s = end.total_ms * 1e-3;
}

}  // namespace tessera
