// Generates texts of JSON schemas, for tests/schema/schema_test.py, by random walks over the allowed tokens.
//
//   schema_samples TOKENIZER END_TOKEN SAMPLES TOKENS SEED [WHITESPACE] < schemas > answers
//
// Each input line has a schema. Each answer line is one object:
//
//   {"status", "message", "ms", "wall_ms", "texts": [{"text", "ended"}], "masks", "masks_ms", "mask_ms"}
//
// "status" is "served", "stuck" (a walk failed) or the name of the compiler's status code, such as "unimplemented".
// "ms" and "wall_ms" are the processor time and the wall-clock time for compiling the schema. "masks" is the number of
// token masks that were computed. "masks_ms" is their total processor time, and "mask_ms" that of the slowest mask.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/engine/grammar/grammar.h"
#include "tessera/text/tokenizer.h"

using namespace tessera;

namespace {

// Returns processor time, which other processes do not affect.
double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double wall_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Walker {
  const Tokenizer& tokenizer;
  std::int64_t vocab_size;
  TokenId end;
  int most_tokens;
  std::mt19937 random;
  std::vector<TokenId> closing;  // tokens that lead towards an end
  int masks = 0;
  double masks_ms = 0;
  double mask_ms = 0;  // time of the slowest mask

  std::vector<TokenId> allowed(GrammarMatcher& matcher) {
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size)));
    const double begin = processor_ms();
    matcher.fill_mask(mask);
    const double ms = processor_ms() - begin;
    ++masks;
    masks_ms += ms;
    mask_ms = std::max(mask_ms, ms);
    std::vector<TokenId> out;
    for (std::int32_t i = 0; i < vocab_size; ++i) {
      if ((mask[TokenId(i).index() / 32] >> (i % 32) & 1) != 0) out.emplace_back(i);
    }
    return out;
  }

  // Returns one of the allowed `tokens`. The probability that it is a closing token grows with `step`, the number of
  // tokens so far.
  TokenId choose(const std::vector<TokenId>& tokens, int step) {
    if (static_cast<int>(random() % 40) < 4 + step) {
      for (const TokenId token : closing) {
        if (std::ranges::find(tokens, token) != tokens.end()) return token;
      }
    }
    return tokens[random() % tokens.size()];
  }

  Result<Json> walk(const std::shared_ptr<const Grammar>& grammar) {
    GrammarMatcher matcher(grammar);
    std::vector<TokenId> ids;
    bool ended = false;
    for (int step = 0; step < most_tokens && !ended; ++step) {
      const std::vector<TokenId> tokens = allowed(matcher);
      if (tokens.empty()) return internal_error("no token is allowed after: " + tokenizer.decode(ids));
      const TokenId token = choose(tokens, step);
      TRY(matcher.accept(token));
      ended = token == end;
      if (!ended) ids.push_back(token);
    }
    Json out = Json::object();
    out.set("text", tokenizer.decode(ids)).set("ended", ended);
    return out;
  }
};

Json answer(GrammarCompiler& compiler, Walker& walker, const std::string& schema, int samples) {
  Json out = Json::object();
  const double begin = processor_ms();
  const double wall_begin = wall_ms();
  const auto grammar = compiler.compile({GrammarSpec::Kind::kJsonSchema, schema});
  const double ms = processor_ms() - begin;
  const double wall = wall_ms() - wall_begin;
  walker.masks = 0;
  walker.masks_ms = walker.mask_ms = 0;
  out.set("status", grammar.ok() ? "served" : status_code_name(grammar.status().code()));
  out.set("message", grammar.status().message()).set("ms", ms);
  out.set("wall_ms", wall);
  Json texts = Json::array();
  for (int i = 0; grammar.ok() && i < samples; ++i) {
    Result<Json> text = walker.walk(*grammar);
    if (!text.ok()) {
      out.set("status", "stuck").set("message", text.status().message());
      break;
    }
    texts.push_back(*std::move(text));
  }
  out.set("texts", std::move(texts)).set("masks", walker.masks);
  out.set("masks_ms", walker.masks_ms).set("mask_ms", walker.mask_ms);
  return out;
}

Status run(const std::vector<std::string>& words) {
  const Tokenizer tokenizer = TRY(Tokenizer::load(words[0]));
  const std::optional<TokenId> end = tokenizer.token_to_id(words[1]);
  if (!end) return invalid_argument(words[1] + " is no token");
  GrammarOptions options;
  if (words.size() > 5) options.json_whitespace = words[5];
  const auto compiler = TRY(GrammarCompiler::create(tokenizer, tokenizer.vocab_size(), {&*end, 1}, options));
  Walker walker{.tokenizer = tokenizer,
                .vocab_size = tokenizer.vocab_size(),
                .end = *end,
                .most_tokens = std::stoi(words[3]),
                .random = std::mt19937(static_cast<unsigned>(std::stoul(words[4]))),
                .closing = {*end}};
  for (const char* text : {"\"", "}", "]", "\"}", "\"]"}) {
    if (const std::optional<TokenId> token = tokenizer.token_to_id(text)) walker.closing.push_back(*token);
  }
  for (std::string schema; std::getline(std::cin, schema);) {
    std::cout << answer(*compiler, walker, schema, std::stoi(words[2])).dump() << '\n' << std::flush;
  }
  return ok_status();
}

}  // namespace

int main(int count, char** words) {
  if (count < 6) {
    std::cerr << "usage: schema_samples TOKENIZER END_TOKEN SAMPLES TOKENS SEED [WHITESPACE] < schemas\n";
    return 2;
  }
  if (!GrammarCompiler::available()) {
    std::cerr << "built without xgrammar\n";
    return 77;
  }
  const Status status = run({words + 1, words + count});
  if (!status.ok()) std::cerr << status.to_string() << '\n';
  return status.ok() ? 0 : 1;
}
