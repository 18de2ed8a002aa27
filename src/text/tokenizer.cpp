#include "tessera/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/lfs_pointer.h"
#include "tessera/text/encoded_spans.h"
#include "tessera/text/lists/list_tokenizer.h"
#include "tessera/text/sentencepiece/sentencepiece_tokenizer.h"
#include "tessera/text/stream_decoder.h"
#include "tessera/text/tokenizer_json.h"
#include "tessera/text/tokenizer_parts.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

// The largest text that encode() accepts. It is bounded because positions inside a piece have 32 bits.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// The state of one encode() call.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, const EncodeOptions& options, std::vector<TokenId>& out)
      : parts_(parts), options_(options), out_(out) {}

  // Encodes `text`. Looks for added tokens in the text as given, and normalises the parts between them. Then looks for
  // added tokens in the normalised parts, and runs the model on what remains.
  Status add(std::string_view text) {
    for (const AddedSpan& span : parts_.added.split(text, false, options_.parse_special)) {
      if (span.id >= 0) {
        out_.emplace_back(span.id);
      } else {
        TRY(add_span(text.substr(span.begin, span.end - span.begin), span.begin == 0));
      }
    }
    return ok_status();
  }

 private:
  // Appends the ids of a text that lies between two added tokens. The ids depend only on the text, the tokenizer and
  // two flags, which `kind` combines. EncodedSpans keeps ids under the text and its kind.
  Status add_span(std::string_view text, bool at_start) {
    if (options_.spans == nullptr) return add_normalized(text, at_start);
    const unsigned kind = (at_start ? 1U : 0U) + (options_.parse_special ? 2U : 0U);
    if (const EncodedSpans::Ids kept = options_.spans->find(text, kind); kept != nullptr) {
      out_.insert(out_.end(), kept->begin(), kept->end());
      return ok_status();
    }
    const std::size_t begin = out_.size();
    TRY(add_normalized(text, at_start));
    options_.spans->add(text, kind, std::span(out_).subspan(begin));
    return ok_status();
  }

  Status add_normalized(std::string_view raw, bool at_start) {
    std::string text(raw);
    if (parts_.normalizer != nullptr) TRY(parts_.normalizer->apply(text));
    for (const AddedSpan& span : parts_.added.split(text, true, options_.parse_special)) {
      if (span.id >= 0) {
        out_.emplace_back(span.id);
      } else {
        TRY(add_model(text.substr(span.begin, span.end - span.begin), at_start && span.begin == 0));
      }
    }
    return ok_status();
  }

  Status add_model(std::string text, bool at_start) {
    Pieces pieces;
    pieces.ranges.push_back({0, text.size()});
    pieces.text = std::move(text);
    pieces.at_start = at_start;
    if (parts_.pre_tokenizer != nullptr) TRY(parts_.pre_tokenizer->apply(pieces));
    return parts_.model->encode(pieces, out_);
  }

  const TokenizerParts& parts_;
  const EncodeOptions& options_;
  std::vector<TokenId>& out_;
};

// Returns the tokenizer file in the folder `path`; `path` itself if it is not a folder.
Result<std::filesystem::path> find_file(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(path, unreadable)) return std::filesystem::path(path);
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    std::filesystem::path file = std::filesystem::path(path) / name;
    if (std::filesystem::exists(file, unreadable)) return file;
  }
  return not_found(path + " has no tokenizer; accepted: a folder with tokenizer.json or tokenizer.model");
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const std::filesystem::path file = TRY(find_file(path));
  if (file.extension() == ".model") {
    TokenizerParts parts = TRY(load_sentencepiece(file.string()));
    return Tokenizer(std::make_unique<const TokenizerParts>(std::move(parts)));
  }
  const std::string text = TRY(read_text_file(file.string()));
  if (is_lfs_pointer(text)) return lfs_pointer_error(file.string());
  return parse(text, file.string());
}

Result<TokenizerParts> make_parts(const TokenizerJson& file) {
  const auto field = [&](const char* path, const Json& value) { return Field(file.file, path, &value); };
  TokenizerParts parts;
  parts.normalizer = TRY(make_normalizer(field("normalizer", file.normalizer)));
  parts.pre_tokenizer = TRY(make_pre_tokenizer(field("pre_tokenizer", file.pre_tokenizer)));
  parts.post_processor = TRY(make_post_processor(field("post_processor", file.post_processor)));
  parts.decoder = TRY(Decoder::create(field("decoder", file.decoder)));
  parts.model = TRY(make_token_model(file));
  parts.added = TRY(
      AddedTokens::create(field("added_tokens", file.added_tokens), parts.model->vocabulary(), parts.normalizer.get()));
  const PostProcessor& added = parts.post_processor;
  std::vector<const std::vector<TokenId>*> sides = {&added.before, &added.after};
  if (added.pair) sides.insert(sides.end(), {&added.pair->before, &added.pair->between, &added.pair->after});
  for (const auto* side : sides) {
    for (const TokenId id : *side) {
      if (parts.token(id)) continue;
      return field("post_processor", file.post_processor)
          .invalid("id " + std::to_string(id.value()) + " has no token; accepted: ids of the vocabulary");
    }
  }
  return parts;
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& name) {
  TokenizerParts parts = TRY(make_parts(TRY(TokenizerJson::parse(json, name))));
  return Tokenizer(std::make_unique<const TokenizerParts>(std::move(parts)));
}

Result<Tokenizer> Tokenizer::create(const TokenLists& lists) {
  TokenizerParts parts = TRY(make_list_tokenizer(lists));
  return Tokenizer(std::make_unique<const TokenizerParts>(std::move(parts)));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("text of " + std::to_string(text.size()) + " bytes; accepted: at most " +
                            std::to_string(kMaxTextBytes));
  }
  if (const std::size_t fault = find_invalid_utf8(text); fault != std::string_view::npos) {
    return invalid_argument("text is not UTF-8: byte " + std::to_string(fault) + " of " + std::to_string(text.size()) +
                            " begins no character");
  }
  std::vector<TokenId> out;
  if (options.add_special_tokens) out = parts_->post_processor.before;
  TRY(Encoding(*parts_, options, out).add(text));
  if (options.add_special_tokens) {
    const std::vector<TokenId>& after = parts_->post_processor.after;
    out.insert(out.end(), after.begin(), after.end());
  }
  return out;
}

bool Tokenizer::joins_pairs() const { return parts_->post_processor.pair.has_value(); }

Result<std::vector<TokenId>> Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                                    const EncodeOptions& options) const {
  if (!joins_pairs()) return failed_precondition("the tokenizer does not say how two texts are joined");
  const PairTemplate& pair = *parts_->post_processor.pair;
  const EncodeOptions plain{.add_special_tokens = false, .parse_special = options.parse_special};
  const std::vector<TokenId> first_ids = TRY(encode(first, plain));
  const std::vector<TokenId> second_ids = TRY(encode(second, plain));
  std::vector<TokenId> out;
  const auto add = [&](const std::vector<TokenId>& part, bool special) {
    if (!special || options.add_special_tokens) out.insert(out.end(), part.begin(), part.end());
  };
  add(pair.before, true);
  add(first_ids, false);
  add(pair.between, true);
  add(second_ids, false);
  add(pair.after, true);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  StreamDecoder stream(*this, skip_special);
  for (const TokenId id : ids) stream.push_to(id, out);
  out += stream.finish();
  return out;
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const { return parts_->find(token); }
std::optional<std::string_view> Tokenizer::id_to_token(TokenId id) const { return parts_->token(id); }
bool Tokenizer::is_special(TokenId id) const { return parts_->is_special(id); }

std::int64_t Tokenizer::vocab_size() const {
  return std::max(parts_->model->vocabulary().size(), parts_->added.size());
}

}  // namespace tessera
