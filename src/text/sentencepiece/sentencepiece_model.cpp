#include "tessera/text/sentencepiece/sentencepiece_model.h"

#include <sentencepiece_processor.h>

#include <exception>

#include "tessera/text/sentencepiece/sentencepiece_proto.h"

namespace tessera {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁

}  // namespace

struct SentencePieceModel::Processor {
  sentencepiece::SentencePieceProcessor library;
};

SentencePieceModel::SentencePieceModel() : processor_(std::make_unique<Processor>()) {}
SentencePieceModel::~SentencePieceModel() = default;

Result<std::unique_ptr<SentencePieceModel>> SentencePieceModel::parse(std::string_view bytes, const std::string& name,
                                                                      Prefix prefix) {
  const SentencePieceProto proto = TRY(SentencePieceProto::parse(bytes, name));
  if (proto.whitespace_as_suffix) {
    return unimplemented(name + ": treat_whitespace_as_suffix is on; accepted: spaces in front of words");
  }
  std::unique_ptr<SentencePieceModel> out(new SentencePieceModel());
  if (!proto.charsmap.empty()) {
    out->charsmap_ = TRY(Charsmap::parse(proto.charsmap, name + ": normalizer_spec.precompiled_charsmap"));
  }
  out->prefix_ = prefix;
  out->add_prefix_ = proto.add_dummy_prefix;
  out->remove_extra_spaces_ = proto.remove_extra_whitespaces;
  TRY(out->load(proto.without_normalization, name));
  return out;
}

Status SentencePieceModel::load(const std::string& bytes, const std::string& name) {
  const auto& library = processor_->library;
  try {
    const auto status = processor_->library.LoadFromSerializedProto(bytes);
    if (!status.ok()) return invalid_argument(name + " is not a SentencePiece model: " + status.ToString());
  } catch (const std::exception& e) {
    // The library throws while it builds its trie, for example if a piece begins with NUL.
    return invalid_argument(name + " is not a SentencePiece model: " + e.what());
  }
  for (int id = 0; id < library.GetPieceSize(); ++id) {
    Status added = vocabulary_.add(library.IdToPiece(id), id);
    if (!added.ok()) return std::move(added).with_context(name);
    if (library.IsControl(id) || library.IsUnknown(id)) control_tokens_.emplace_back(id);
  }
  if (library.bos_id() >= 0) begin_ = TokenId(library.bos_id());
  if (library.eos_id() >= 0) end_ = TokenId(library.eos_id());
  return ok_status();
}

std::string SentencePieceModel::normalize(std::string_view text, bool prefix) const {
  std::string out = charsmap_ ? charsmap_->replace_longest(text) : std::string(text);
  if (remove_extra_spaces_) {
    std::string words;
    for (const char c : out) {
      if (c != ' ' || (!words.empty() && words.back() != ' ')) words += c;
    }
    // At the end of a text, and only there, the library treats its space mark like a space.
    for (;;) {
      if (words.ends_with(' ')) {
        words.pop_back();
      } else if (words.ends_with(kSpaceMark)) {
        words.resize(words.size() - kSpaceMark.size());
      } else {
        break;
      }
    }
    out = std::move(words);
  }
  if (prefix && !out.empty()) out.insert(0, " ");
  return out;
}

Status SentencePieceModel::encode(const Pieces& pieces, std::vector<TokenId>& out) const {
  std::vector<int> ids;
  bool prefix = add_prefix_ && (prefix_ == Prefix::kEveryText || pieces.at_start);
  for (const TextRange& range : pieces.ranges) {
    const auto status = processor_->library.Encode(normalize(pieces.view(range), prefix), &ids);
    if (!status.ok()) return internal_error("libsentencepiece: " + status.ToString());
    for (const int id : ids) out.emplace_back(id);
    prefix = add_prefix_ && prefix_ == Prefix::kEveryText;
  }
  return ok_status();
}

}  // namespace tessera
