#include "tessera/text/lists/pre_tokenizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// The patterns of published tokenizers. They differ in how many digits stay together, in how they treat letters
// with marks, and in what follows punctuation.
#define TESSERA_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TESSERA_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TESSERA_CAPITALS R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TESSERA_SMALL R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"

constexpr std::string_view kQwen2 =
    TESSERA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" TESSERA_SPACES;
constexpr std::string_view kQwen35 =
    TESSERA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" TESSERA_SPACES;
constexpr std::string_view kLlama3 =
    TESSERA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" TESSERA_SPACES;
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?)" TESSERA_CAPITALS "*" TESSERA_SMALL "+" TESSERA_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?)" TESSERA_CAPITALS "+" TESSERA_SMALL "*" TESSERA_CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" TESSERA_SPACES;
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?)" TESSERA_CAPITALS "*" TESSERA_SMALL R"(+|[^\r\n\p{L}\p{N}]?)" TESSERA_CAPITALS
    "+" TESSERA_SMALL R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" TESSERA_SPACES;
constexpr std::string_view kDeepSeekV3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" TESSERA_SPACES;

constexpr std::string_view kSeedCoder =
    TESSERA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" TESSERA_SPACES;
// GPT-2's pattern, for sequences in which other patterns follow it.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// A run of anything but spaces and the punctuation that ends clauses in several scripts.
constexpr std::string_view kClauses = " ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+";
// The letters with case that the tokenizer.json of DeepSeek LLM lists. It leaves out some blocks of rare letters.
constexpr std::string_view kDeepSeekLetters =
    "\\s?(?:(?![\u2D00-\u2D2D\uA790-\uA7FA\uAB30-\uAB68\U00010570-\U000105BC\U00016E40-\U00016E7F\U0001D400-\U0001D7CB"
    "\U0001DF00-\U0001DF1E])[\\p{Lu}\\p{Ll}\\p{Lt}])+";
constexpr std::string_view kDeepSeekPunctuation = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr std::string_view kDeepSeekHan = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";

#undef TESSERA_SPACES
#undef TESSERA_CONTRACTIONS
#undef TESSERA_CAPITALS
#undef TESSERA_SMALL

struct Row {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;  // applied one after the other; their matches become pieces
  bool single_digits = false;              // each digit is a piece
  bool gpt2 = false;                       // GPT-2's pattern comes last
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
  bool raw = false;  // spaces become "▁", and bytes are not replaced by symbols
};

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {.names = {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"}, .patterns = {kQwen2}, .nfc = true},
      {.names = {"stablelm2", "hunyuan", "grok-2"}, .patterns = {kQwen2}},
      {.names = {"qwen35"}, .patterns = {kQwen35}, .nfc = true},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                 "jina-v5-nano"},
       .patterns = {kLlama3},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"}, .patterns = {kLlama3}},
      {.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"}, .patterns = {kGpt4o}},
      {.names = {"tekken"}, .patterns = {kTekken}, .ignore_merges = true, .add_bos = true},
      {.names = {"deepseek-v3", "hunyuan-dense"},
       .patterns = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeekV3Words}},
      {.names = {"deepseek-coder"},
       .patterns = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekHan},
       .single_digits = true},
      {.names = {"deepseek-llm"},
       .patterns = {R"([\r\n])", kDeepSeekLetters, kDeepSeekPunctuation, R"(\s+$)", kDeepSeekHan, R"(\p{N}+)"}},
      {.names = {"gpt-2", "phi-2", "olmo", "mpt", "modern-bert", "gigachat", "a.x-4.0", "mellum", "trillion", "exaone4",
                 "jais", "granite-docling"},
       .patterns = {},
       .gpt2 = true},
      {.names = {"falcon"}, .patterns = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {.names = {"default", ""}, .patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"seed-coder"}, .patterns = {kSeedCoder}},
      {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .patterns = {kClauses}},
      {.names = {"viking"}, .patterns = {kClauses, R"(\p{N})"}},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       .patterns = {},
       .single_digits = true,
       .gpt2 = true},
      {.names = {"gemma4"}, .patterns = {}, .raw = true},
  };
  return kRows;
}

Json with_type(const char* type) {
  Json json = Json::object();
  json.set("type", type);
  return json;
}

Json pre_tokenizer_of(const Row& row) {
  Json::Array steps;
  if (row.single_digits) steps.emplace_back(with_type("Digits")).set("individual_digits", true);
  for (const std::string_view pattern : row.patterns) {
    Json regex = Json::object();
    regex.set("Regex", pattern);
    steps.emplace_back(with_type("Split")).set("pattern", std::move(regex)).set("behavior", "Isolated");
  }
  steps.emplace_back(with_type("ByteLevel")).set("add_prefix_space", false).set("use_regex", row.gpt2);
  return with_type("Sequence").set("pretokenizers", std::move(steps));
}

// Returns whether the member of `step` with the name `member` equals `value`. An absent member counts as `initial`.
bool is_flag(const Json& step, const char* member, bool value, bool initial) {
  const Json* flag = step.find(member);
  return flag == nullptr || flag->is_null() ? value == initial : *flag == Json(value);
}

bool is_type(const Json& step, const char* type) {
  const Json* name = step.find("type");
  return name != nullptr && *name == Json(type);
}

// Returns the steps of a pre-tokenizer or normalizer: the members of a sequence, or else the object itself.
Json::Array steps_of(const Json& json, const char* member) {
  if (!json.is_object()) return {};
  const Json* steps = json.find(member);
  if (is_type(json, "Sequence") && steps != nullptr && steps->is_array()) return steps->as_array();
  return {json};
}

// Converts a pre-tokenizer to a Row without names and patterns. Appends the regular expressions of the steps to
// `patterns` instead. Returns nothing if a Row cannot express one of the steps.
std::optional<Row> row_of(const Json& pre_tokenizer, std::vector<std::string>& patterns) {
  Row row{};
  bool bytes = false;
  for (const Json& step : steps_of(pre_tokenizer, "pretokenizers")) {
    if (bytes) return std::nullopt;  // no step may follow the byte-level one
    if (is_type(step, "Digits") && is_flag(step, "individual_digits", true, false) && patterns.empty()) {
      row.single_digits = true;
    } else if (is_type(step, "Split") && is_flag(step, "invert", false, false)) {
      const Json* pattern = step.find("pattern");
      const Json* regex = pattern != nullptr ? pattern->find("Regex") : nullptr;
      const Json* behavior = step.find("behavior");
      if (regex == nullptr || !regex->is_string() || behavior == nullptr || *behavior != Json("Isolated"))
        return std::nullopt;
      patterns.push_back(regex->as_string());
    } else if (is_type(step, "ByteLevel") && is_flag(step, "add_prefix_space", false, true)) {
      bytes = true;
      row.gpt2 = is_flag(step, "use_regex", true, true);
    } else {
      return std::nullopt;
    }
  }
  return bytes ? std::optional<Row>(std::move(row)) : std::nullopt;
}

// Returns the normalizer that replaces each space by "▁".
Json space_marks() {
  Json space = Json::object();
  space.set("String", " ");
  return with_type("Replace").set("pattern", std::move(space)).set("content", "▁");
}

}  // namespace

bool find_pre_tokenizer(std::string_view name, NamedPreTokenizer& found) {
  for (const Row& row : rows()) {
    if (std::ranges::find(row.names, name) == row.names.end()) continue;
    found = {.normalizer = row.raw   ? space_marks()
                           : row.nfc ? with_type("NFC")
                                     : Json(),
             .pre_tokenizer = row.raw ? Json() : pre_tokenizer_of(row),
             .ignore_merges = row.ignore_merges,
             .add_bos = row.add_bos};
    return true;
  }
  return false;
}

std::optional<std::string> name_pre_tokenizer(const Json& normalizer, const Json& pre_tokenizer, bool ignore_merges) {
  std::vector<std::string> patterns;
  const std::optional<Row> wanted = row_of(pre_tokenizer, patterns);
  const Json::Array normal = steps_of(normalizer, "normalizers");
  const bool nfc = normal.size() == 1 && is_type(normal[0], "NFC");
  if (!wanted || (!normal.empty() && !nfc)) return std::nullopt;
  const auto found = std::ranges::find_if(rows(), [&](const Row& row) {
    return !row.raw && row.single_digits == wanted->single_digits && row.gpt2 == wanted->gpt2 && row.nfc == nfc &&
           row.ignore_merges == ignore_merges && std::ranges::equal(row.patterns, patterns);
  });
  return found != rows().end() ? std::optional<std::string>(found->names.front()) : std::nullopt;
}

std::string pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) std::ranges::remove_copy(row.names, std::back_inserter(names), std::string_view());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace tessera
