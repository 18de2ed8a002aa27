#include "tessera/text/post_processor.h"

#include <optional>
#include <utility>

#include "tessera/text/tokenizer_json.h"

namespace tessera {
namespace {

Result<TokenId> read_id(const Field& item) {
  const std::int64_t id = TRY(item.integer());
  if (id < 0 || id >= kMaxVocabularySize) {
    return item.invalid("accepted: an id from 0 to " + std::to_string(kMaxVocabularySize - 1));
  }
  return TokenId(static_cast<std::int32_t>(id));
}

Result<std::vector<TokenId>> special_token_ids(const Field& special_tokens, const std::string& name) {
  std::vector<TokenId> out;
  for (const Field& item : TRY(special_tokens.member(name).member("ids").elements())) {
    out.push_back(TRY(read_id(item)));
  }
  return out;
}

// Reads the file's template for two texts. Returns nothing if the file has none, or if the template does not contain
// the first text and then the second text, each once.
Result<std::optional<PairTemplate>> make_pair(const Field& field) {
  const Field pair = field.member("pair");
  if (pair.absent()) return std::optional<PairTemplate>();
  PairTemplate out;
  std::vector<TokenId>* const sides[] = {&out.before, &out.between, &out.after};
  std::size_t texts = 0;
  for (const Field& item : TRY(pair.elements())) {
    const Field text = item.member("Sequence");
    if (!text.absent()) {
      if (texts == 2 || TRY(text.member("id").string()) != (texts == 0 ? "A" : "B"))
        return std::optional<PairTemplate>();
      ++texts;
      continue;
    }
    const Field id = item.member("SpecialToken").member("id");
    const std::vector<TokenId> ids = TRY(special_token_ids(field.member("special_tokens"), TRY(id.string())));
    sides[texts]->insert(sides[texts]->end(), ids.begin(), ids.end());
  }
  if (texts < 2) return std::optional<PairTemplate>();
  return std::optional(std::move(out));
}

Result<PostProcessor> make_template(const Field& field) {
  PostProcessor out;
  bool behind_text = false;
  const Field single = field.member("single");
  for (const Field& item : TRY(single.elements())) {
    if (!item.member("Sequence").absent()) {
      if (behind_text) return single.invalid("accepted: a template with one Sequence");
      behind_text = true;
      continue;
    }
    const Field id = item.member("SpecialToken").member("id");
    const std::vector<TokenId> ids = TRY(special_token_ids(field.member("special_tokens"), TRY(id.string())));
    std::vector<TokenId>& side = behind_text ? out.after : out.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!behind_text) return single.invalid("accepted: a template with one Sequence");
  out.pair = TRY(make_pair(field));
  return out;
}

// Returns the id in a field such as ["</s>", 2].
Result<TokenId> token_of_pair(const Field& field) {
  const std::vector<Field> pair = TRY(field.elements());
  if (pair.size() != 2) return field.invalid("accepted: [token, id]");
  return read_id(pair[1]);
}

// Makes the post-processor of BERT, which puts one separator between two texts, or of RoBERTa, which puts two.
Result<PostProcessor> make_classifier(const Field& field, std::size_t separators) {
  const TokenId begin = TRY(token_of_pair(field.member("cls")));
  const TokenId separator = TRY(token_of_pair(field.member("sep")));
  return PostProcessor{
      .before = {begin},
      .after = {separator},
      .pair = PairTemplate{
          .before = {begin}, .between = std::vector<TokenId>(separators, separator), .after = {separator}}};
}

Result<PostProcessor> make(const Field& field, int depth) {
  TRY(field.check_depth(depth));
  const Field type_field = field.member("type");
  const std::string type = TRY(type_field.string());
  if (type == "ByteLevel") return PostProcessor{};  // ByteLevel changes only character offsets, never ids
  if (type == "TemplateProcessing") return make_template(field);
  if (type == "BertProcessing") return make_classifier(field, 1);
  if (type == "RobertaProcessing") return make_classifier(field, 2);
  if (type == "Sequence") {
    PostProcessor out;
    for (const Field& item : TRY(field.member("processors").elements())) {
      const PostProcessor step = TRY(make(item, depth + 1));
      out.before.insert(out.before.begin(), step.before.begin(), step.before.end());
      out.after.insert(out.after.end(), step.after.begin(), step.after.end());
      if (step.pair) out.pair = step.pair;  // the last step with a template for pairs counts
    }
    return out;
  }
  return type_field.unsupported({"TemplateProcessing", "ByteLevel", "BertProcessing", "RobertaProcessing", "Sequence"});
}

}  // namespace

Result<PostProcessor> make_post_processor(const Field& field) {
  if (field.absent()) return PostProcessor{};
  return make(field, 0);
}

}  // namespace tessera
