#include "tessera/text/tokenizer_json.h"

#include <simdjson.h>

#include "tessera/text/field.h"

namespace tessera {
namespace {

namespace dom = simdjson::dom;

struct Document {
  dom::parser parser;
  dom::element root;
};

class Reader {
 public:
  explicit Reader(TokenizerJson& out) : out_(out) {}

  Status read(dom::element root) {
    dom::object object;
    if (root.get(object) != simdjson::SUCCESS) return invalid("the document", root, "accepted: an object");
    for (const auto& [key, value] : object) {
      if (key == "normalizer") out_.normalizer = TRY(convert(value, 0));
      if (key == "pre_tokenizer") out_.pre_tokenizer = TRY(convert(value, 0));
      if (key == "post_processor") out_.post_processor = TRY(convert(value, 0));
      if (key == "decoder") out_.decoder = TRY(convert(value, 0));
      if (key == "added_tokens") out_.added_tokens = TRY(convert(value, 0));
    }
    dom::element model;
    if (root["model"].get(model) != simdjson::SUCCESS) return missing("model", "an object");
    dom::object members;
    if (model.get(members) != simdjson::SUCCESS) return invalid("model", model, "accepted: an object");
    return read_model(members);
  }

 private:
  Status read_model(dom::object model) {
    out_.model = Json::object();
    bool has_vocab = false;
    bool has_merges = false;
    dom::element vocab;
    dom::element merges;
    for (const auto& [key, value] : model) {
      if (key == "vocab") {
        vocab = value;
        has_vocab = true;
      } else if (key == "merges") {
        merges = value;
        has_merges = true;
      } else {
        Json member = TRY(convert(value, 0));
        out_.model.set(std::string(key), std::move(member));
      }
    }
    // A model of an unsupported type may store its vocabulary in another form. The error must name the type and not the
    // form, so the type is checked first.
    const Json* type = out_.model.find("type");
    if (type == nullptr && !has_merges) return missing("model.type", "\"BPE\" or \"Unigram\"");
    const Field field(out_.file, "model.type", type);
    const std::string name = TRY(field.string_or("BPE"));
    if (name == "Unigram") {
      out_.model_type = TokenizerJson::ModelType::kUnigram;
      if (!has_vocab) return missing("model.vocab", "an array of [token, score]");
      return read_scored_vocab(vocab);
    }
    if (name != "BPE") return field.unsupported({"BPE", "Unigram"});
    if (!has_vocab) return missing("model.vocab", "an object of token: id");
    if (!has_merges) return missing("model.merges", "an array of \"a b\" or [\"a\", \"b\"]");
    TRY(read_vocab(vocab));
    return read_merges(merges);
  }

  Status read_vocab(dom::element vocab) {
    dom::object entries;
    if (vocab.get(entries) != simdjson::SUCCESS)
      return invalid("model.vocab", vocab, "accepted: an object of token: id");
    out_.vocab.reserve(entries.size());
    for (const auto& [token, value] : entries) {
      std::int64_t id = 0;
      if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxVocabularySize) {
        return invalid("model.vocab[" + quote_for_error(token) + "]", value,
                       "accepted: an id from 0 to " + std::to_string(kMaxVocabularySize - 1));
      }
      out_.vocab.push_back({token, static_cast<std::int32_t>(id)});
    }
    return ok_status();
  }

  // Reads a list of tokens with scores. A token's id is its index in the list.
  Status read_scored_vocab(dom::element vocab) {
    dom::array entries;
    if (vocab.get(entries) != simdjson::SUCCESS || entries.size() >= kMaxVocabularySize) {
      return invalid("model.vocab", vocab,
                     "accepted: an array of fewer than " + std::to_string(kMaxVocabularySize) + " [token, score]");
    }
    out_.vocab.reserve(entries.size());
    for (const dom::element entry : entries) {
      TokenizerJson::VocabEntry token{{}, static_cast<std::int32_t>(out_.vocab.size())};
      dom::array pair;
      if (entry.get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
          pair.at(0).get(token.token) != simdjson::SUCCESS || pair.at(1).get(token.score) != simdjson::SUCCESS) {
        return invalid("model.vocab[" + std::to_string(out_.vocab.size()) + "]", entry, "accepted: [token, score]");
      }
      out_.vocab.push_back(token);
    }
    return ok_status();
  }

  Status read_merges(dom::element merges) {
    constexpr const char* kAccepted = "accepted: \"a b\" with exactly one space, or [\"a\", \"b\"]";
    dom::array entries;
    if (merges.get(entries) != simdjson::SUCCESS) return invalid("model.merges", merges, "accepted: an array");
    out_.merges.reserve(entries.size());
    for (const dom::element entry : entries) {
      std::string_view text;
      dom::array pair;
      TokenizerJson::MergeEntry merge;
      bool good = false;
      if (entry.get(text) == simdjson::SUCCESS) {
        const std::size_t space = text.find(' ');
        good = space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos;
        if (good) merge = {text.substr(0, space), text.substr(space + 1)};
      } else if (entry.get(pair) == simdjson::SUCCESS) {
        good = pair.size() == 2 && pair.at(0).get(merge.left) == simdjson::SUCCESS &&
               pair.at(1).get(merge.right) == simdjson::SUCCESS;
      }
      if (!good || merge.left.empty() || merge.right.empty()) {
        return invalid("model.merges[" + std::to_string(out_.merges.size()) + "]", entry, kAccepted);
      }
      out_.merges.push_back(merge);
    }
    return ok_status();
  }

  Result<Json> convert(dom::element value, int depth) {
    // Bounds the recursion. simdjson's parser and Json::parse have the same limit, so this check refuses no document
    // that they accept.
    if (depth > kMaxJsonDepth) {
      return invalid_argument(out_.file + ": nested deeper than " + std::to_string(kMaxJsonDepth));
    }
    switch (value.type()) {
      case dom::element_type::NULL_VALUE: return Json();
      case dom::element_type::BOOL: return Json(bool(value));
      case dom::element_type::INT64: return Json(std::int64_t(value));
      case dom::element_type::UINT64: return Json(static_cast<double>(std::uint64_t(value)));
      case dom::element_type::DOUBLE: return Json(double(value));
      case dom::element_type::STRING: return Json(std::string_view(value));
      case dom::element_type::ARRAY: {
        Json out = Json::array();
        for (const dom::element item : dom::array(value)) out.push_back(TRY(convert(item, depth + 1)));
        return out;
      }
      case dom::element_type::OBJECT: {
        Json::Object members;
        for (const auto& [key, item] : dom::object(value)) {
          Json member = TRY(convert(item, depth + 1));
          members.emplace_back(std::string(key), std::move(member));
        }
        return Json::object(std::move(members));
      }
    }
    return internal_error(out_.file + ": unknown JSON type");
  }

  Status missing(const std::string& path, const std::string& accepted) const {
    return invalid_argument(out_.file + ": " + path + ": missing; accepted: " + accepted);
  }
  Status invalid(const std::string& path, dom::element value, const std::string& why) {
    const Result<Json> shown = convert(value, 0);
    return Field(out_.file, path, shown.ok() ? &*shown : nullptr).invalid(why);
  }

  TokenizerJson& out_;
};

}  // namespace

Result<TokenizerJson> TokenizerJson::parse(std::string_view text, const std::string& file) {
  TokenizerJson out;
  out.file = file;
  auto document = std::make_shared<Document>();
  const simdjson::error_code error = document->parser.parse(text.data(), text.size()).get(document->root);
  if (error != simdjson::SUCCESS) {
    // Json::parse() is slower, but its error says where the fault is.
    TRY(Json::parse(text, file));
    return invalid_argument(file + " is not valid JSON: " + simdjson::error_message(error));
  }
  TRY(Reader(out).read(document->root));
  out.owner = std::move(document);
  return out;
}

}  // namespace tessera
