#include "tessera/text/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tessera/text/byte_alphabet.h"
#include "tessera/text/pattern_field.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

using PreTokenizerPtr = std::unique_ptr<PreTokenizer>;

// GPT-2's split pattern, which ByteLevel has built in.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Matches words, and runs of characters that are neither words nor white space. The joiners U+200C and U+200D are word
// characters, as in Oniguruma.
constexpr std::string_view kWords = R"([\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+)";

// The ways in which a split can treat its matches.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Result<Behavior> make_behavior(const Field& field) {
  const std::string name = TRY(field.string());
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return field.unsupported({"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
}

struct Part {
  TextRange range;
  bool is_match;
};

// Returns the matches and the gaps between them, which together cover all `size` bytes. With `invert`, the gaps count
// as matches, and the matches count as gaps.
std::vector<Part> with_gaps(const std::vector<TextRange>& matches, std::size_t size, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  std::size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin > done) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < size) parts.push_back({{done, size}, invert});
  return parts;
}

// Drops or merges `parts` as `behavior` says. Appends the remaining ranges to `out`, with `offset` added.
void combine(std::vector<Part> parts, Behavior behavior, std::size_t offset, std::vector<TextRange>& out) {
  const std::size_t first = out.size();
  const bool backwards = behavior == Behavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  bool previous_match = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [range, is_match] = parts[i];
    bool join = false;
    switch (behavior) {
      case Behavior::kRemoved:
        if (is_match) continue;
        break;
      case Behavior::kIsolated: break;
      case Behavior::kMergedWithPrevious:
      case Behavior::kMergedWithNext: join = is_match && !previous_match; break;
      case Behavior::kContiguous: join = is_match == previous_match; break;
    }
    previous_match = is_match;
    if (join && out.size() > first) {
      (backwards ? out.back().begin : out.back().end) = (backwards ? range.begin : range.end) + offset;
    } else {
      out.push_back({range.begin + offset, range.end + offset});
    }
  }
  if (backwards) std::reverse(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
}

// A function that appends to `out` the matching ranges of `text`.
using Finder = std::function<Status(std::string_view text, std::vector<TextRange>& out)>;

Finder find_pattern(SplitPattern pattern) {
  auto shared = std::make_shared<const SplitPattern>(std::move(pattern));
  return [shared](std::string_view text, std::vector<TextRange>& out) { return shared->find_all(text, out); };
}

template <class Predicate>
Finder find_characters(Predicate predicate) {
  return [predicate](std::string_view text, std::vector<TextRange>& out) {
    for (std::size_t pos = 0; pos < text.size();) {
      const Utf8Step step = decode_utf8(text, pos);
      if (predicate(step.code)) out.push_back({pos, pos + step.length});
      pos += step.length;
    }
    return ok_status();
  };
}

class Split : public PreTokenizer {
 public:
  Split(Finder find, Behavior behavior, bool invert) : find_(std::move(find)), behavior_(behavior), invert_(invert) {}
  Status apply(Pieces& pieces) const override {
    std::vector<TextRange> out;
    std::vector<TextRange> matches;
    for (const TextRange& range : pieces.ranges) {
      const std::string_view text = pieces.view(range);
      matches.clear();
      TRY(find_(text, matches));
      combine(with_gaps(matches, text.size(), invert_), behavior_, range.begin, out);
    }
    if (!out.empty() && out.front().begin != pieces.ranges.front().begin) pieces.at_start = false;
    pieces.ranges = std::move(out);
    return ok_status();
  }

 private:
  Finder find_;
  Behavior behavior_;
  bool invert_;
};

// Rewrites each piece separately. `rewrite(piece, out)` appends the new text of `piece` to `out`.
template <class Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite rewrite) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4 + 16);
  for (TextRange& range : pieces.ranges) {
    const std::size_t begin = text.size();
    rewrite(pieces.view(range), text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, PreTokenizerPtr split)
      : add_prefix_space_(add_prefix_space), split_(std::move(split)) {}
  Status apply(Pieces& pieces) const override {
    if (add_prefix_space_) {
      rewrite_pieces(pieces, [](std::string_view piece, std::string& out) {
        if (!piece.starts_with(' ')) out += ' ';
        out += piece;
      });
    }
    if (split_ != nullptr) TRY(split_->apply(pieces));
    rewrite_pieces(pieces, [](std::string_view piece, std::string& out) { append_symbols(out, piece); });
    return ok_status();
  }

 private:
  bool add_prefix_space_;
  PreTokenizerPtr split_;  // null if ByteLevel itself does not split
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme) {
    if (split) {
      split_ =
          std::make_unique<Split>(find_pattern(SplitPattern::literal(replacement_)), Behavior::kMergedWithNext, false);
    }
  }
  Status apply(Pieces& pieces) const override {
    bool prepend = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && pieces.at_start);
    rewrite_pieces(pieces, [&](std::string_view piece, std::string& out) {
      if (prepend && !piece.starts_with(' ') && !piece.starts_with(replacement_)) out += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
      if (scheme_ == PrependScheme::kFirst) prepend = false;
    });
    return split_ == nullptr ? ok_status() : split_->apply(pieces);
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  PreTokenizerPtr split_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<PreTokenizerPtr> steps) : steps_(std::move(steps)) {}
  Status apply(Pieces& pieces) const override {
    for (const auto& step : steps_) TRY(step->apply(pieces));
    return ok_status();
  }

 private:
  std::vector<PreTokenizerPtr> steps_;
};

PreTokenizerPtr split(Finder find, Behavior behavior, bool invert = false) {
  return std::make_unique<Split>(std::move(find), behavior, invert);
}

Result<PreTokenizerPtr> make_byte_level(const Field& field) {
  const bool add_prefix_space = TRY(field.member("add_prefix_space").boolean_or(true));
  const bool use_regex = TRY(field.member("use_regex").boolean_or(true));
  PreTokenizerPtr own;
  if (use_regex) own = split(find_pattern(TRY(SplitPattern::compile(kGpt2Pattern))), Behavior::kIsolated);
  return PreTokenizerPtr(new ByteLevel(add_prefix_space, std::move(own)));
}

Result<PreTokenizerPtr> make_metaspace(const Field& field) {
  const Field replacement_field = field.member("replacement");
  std::string replacement = "\xE2\x96\x81";  // ▁
  if (!replacement_field.absent()) {
    replacement.clear();
    append_utf8(replacement, TRY(replacement_field.character()));
  }
  // Older files have the field add_prefix_space, and newer files have the field prepend_scheme.
  PrependScheme scheme = PrependScheme::kAlways;
  if (!TRY(field.member("add_prefix_space").boolean_or(true))) scheme = PrependScheme::kNever;
  const Field scheme_field = field.member("prepend_scheme");
  if (!scheme_field.absent()) {
    const std::string name = TRY(scheme_field.string());
    if (name == "always") {
      scheme = PrependScheme::kAlways;
    } else if (name == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name == "never") {
      scheme = PrependScheme::kNever;
    } else {
      return scheme_field.unsupported({"always", "first", "never"});
    }
  }
  const bool split = TRY(field.member("split").boolean_or(true));
  return PreTokenizerPtr(new Metaspace(std::move(replacement), scheme, split));
}

Result<PreTokenizerPtr> make_split(const Field& field) {
  Finder find = find_pattern(TRY(make_pattern(field.member("pattern"))));
  const Behavior behavior = TRY(make_behavior(field.member("behavior")));
  const bool invert = TRY(field.member("invert").boolean_or(false));
  return split(std::move(find), behavior, invert);
}

Result<PreTokenizerPtr> make(const Field& field, int depth) {
  TRY(field.check_depth(depth));
  const Field type_field = field.member("type");
  const std::string type = TRY(type_field.string());
  if (type == "Split") return make_split(field);
  if (type == "ByteLevel") return make_byte_level(field);
  if (type == "Metaspace") return make_metaspace(field);
  if (type == "Digits") {
    const bool individual = TRY(field.member("individual_digits").boolean_or(false));
    return split(find_characters(is_number), individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Whitespace") {
    return split(find_pattern(TRY(SplitPattern::compile(kWords))), Behavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") return split(find_characters(is_whitespace), Behavior::kRemoved);
  if (type == "Punctuation") {
    const Field behavior_field = field.member("behavior");
    Behavior behavior = Behavior::kIsolated;
    if (!behavior_field.absent()) behavior = TRY(make_behavior(behavior_field));
    return split(find_characters(is_punctuation), behavior);
  }
  if (type == "CharDelimiterSplit") {
    const char32_t delimiter = TRY(field.member("delimiter").character());
    return split(find_characters([delimiter](char32_t code) { return code == delimiter; }), Behavior::kRemoved);
  }
  if (type == "BertPreTokenizer") {
    std::vector<PreTokenizerPtr> steps;
    steps.push_back(split(find_characters(is_whitespace), Behavior::kRemoved));
    steps.push_back(split(find_characters(is_punctuation), Behavior::kIsolated));
    return PreTokenizerPtr(new Sequence(std::move(steps)));
  }
  if (type == "Sequence") {
    std::vector<PreTokenizerPtr> steps;
    for (const Field& item : TRY(field.member("pretokenizers").elements())) steps.push_back(TRY(make(item, depth + 1)));
    return PreTokenizerPtr(new Sequence(std::move(steps)));
  }
  return type_field.unsupported({"Split", "ByteLevel", "Metaspace", "Digits", "Whitespace", "WhitespaceSplit",
                                 "Punctuation", "CharDelimiterSplit", "BertPreTokenizer", "Sequence"});
}

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const Field& field) {
  if (field.absent()) return PreTokenizerPtr();
  return make(field, 0);
}

}  // namespace tessera
